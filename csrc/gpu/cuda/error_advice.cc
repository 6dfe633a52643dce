#include "gpu/cuda/error_advice.h"

namespace pc::cuda {
namespace {

struct Row {
  CUresult error;
  Code code;
  std::string_view advice;
};

constexpr std::string_view kLost =
    "an earlier kernel or copy on this GPU failed, and its context is lost: every further call of this "
    "process on it fails "
    "too (compute-sanitizer finds the cause)";
constexpr std::string_view kNotInCapture =
    "the stream is being captured into a CUDA graph, where this cannot be done";

constexpr Row kRows[] = {
    {CUDA_ERROR_OUT_OF_MEMORY, Code::kSystem,
     "the memory is in use, by this process or others: nvidia-smi shows which processes use a GPU's memory; "
     "pinned memory is the host's"},
    {CUDA_ERROR_NOT_INITIALIZED, Code::kSystem,
     "CUDA cannot be used in a child of fork() after its parent used it: start processes with the method "
     "\"spawn\""},
    {CUDA_ERROR_DEINITIALIZED, Code::kSystem, "this process is already ending"},
    {CUDA_ERROR_STUB_LIBRARY, Code::kUnsupported,
     "this is the toolkit's stub, made for linking: take its folder out of LD_LIBRARY_PATH, so that the "
     "driver's own "
     "libcuda.so.1 is found"},
    {CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER, Code::kUnsupported, "install a newer NVIDIA driver"},
    {CUDA_ERROR_DEVICE_UNAVAILABLE, Code::kSystem,
     "another process has the GPU for itself (nvidia-smi -q -d COMPUTE shows the compute mode)"},
    {CUDA_ERROR_NO_DEVICE, Code::kUnsupported,
     "no GPU is visible to this process: compare `nvidia-smi -L` with CUDA_VISIBLE_DEVICES, and start a "
     "container with its GPUs (docker run --gpus all)"},
    {CUDA_ERROR_NO_BINARY_FOR_GPU, Code::kUnsupported, {}},
    {CUDA_ERROR_ECC_UNCORRECTABLE, Code::kSystem, "the GPU's memory is damaged: reset or replace the GPU"},
    {CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, Code::kUnsupported,
     "these two GPUs cannot read each other's memory (nvidia-smi topo -p2p r)"},
    {CUDA_ERROR_UNSUPPORTED_PTX_VERSION, Code::kUnsupported, {}},
    {CUDA_ERROR_ILLEGAL_ADDRESS, Code::kSystem, kLost},
    {CUDA_ERROR_LAUNCH_FAILED, Code::kSystem, kLost},
    {CUDA_ERROR_NOT_PERMITTED, Code::kUnsupported, {}},
    {CUDA_ERROR_NOT_SUPPORTED, Code::kUnsupported, {}},
    {CUDA_ERROR_SYSTEM_NOT_READY, Code::kUnsupported,
     "the machine's GPUs are not ready: is nvidia-fabricmanager running?"},
    {CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, Code::kUnsupported,
     "libcuda.so.1 and the driver in the kernel are of different versions: restart the machine after an "
     "update; in a container, take the copy of libcuda that came with its image out of LD_LIBRARY_PATH"},
    {CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, Code::kUnsupported,
     "this libcuda.so.1 is of the compatibility package, which this GPU does not take: remove its folder "
     "(cuda/compat) from LD_LIBRARY_PATH"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, Code::kUnsupported, kNotInCapture},
    {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, Code::kUnsupported,
     "an earlier call ended the capture of this stream into a CUDA graph"},
    {CUDA_ERROR_CAPTURED_EVENT, Code::kUnsupported,
     "the event belongs to the capture of a CUDA graph, so it cannot be queried"},
    {CUDA_ERROR_UNKNOWN, Code::kSystem,
     "the driver in the kernel may not be loaded or may hang: look at `nvidia-smi`, /dev/nvidia* and "
     "`dmesg`"},
};

const Row* row_for(CUresult error) {
  for (const Row& row : kRows) {
    if (row.error == error) return &row;
  }
  return nullptr;
}

}  // namespace

Code code_for(CUresult error) {
  const Row* const row = row_for(error);
  return row != nullptr ? row->code : Code::kSystem;
}

std::string_view advice_for(CUresult error) {
  const Row* const row = row_for(error);
  return row != nullptr ? row->advice : std::string_view();
}

}  // namespace pc::cuda
