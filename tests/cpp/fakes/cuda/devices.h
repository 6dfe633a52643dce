// A FAKE of the CUDA driver: devices, their contexts, and the texts of errors.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <mutex>
#include <string>

#include "fakes/cuda/world.h"

namespace pc::cuda {

// --- Devices and contexts

inline CUresult cuInit(unsigned) {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  ++w.calls["cuInit"];
  if (w.process != -1 && w.process != ::getpid()) return CUDA_ERROR_NOT_INITIALIZED;
  if (w.init_result == 0) w.process = ::getpid();
  return w.init_result;
}
inline CUresult cuDriverGetVersion(int* version) {
  const std::lock_guard lock(world().mutex);
  *version = world().version;
  return CUDA_SUCCESS;
}
inline bool is_device(CUdevice device) { return device >= 0 && device < world().device_count; }

inline CUresult cuDeviceGetCount(int* count) {
  BEGIN(cuDeviceGetCount);
  *count = world().device_count;
  return CUDA_SUCCESS;
}
inline CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  BEGIN(cuDeviceGet);
  *device = ordinal;
  return is_device(ordinal) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
inline CUresult write_text(char* to, int length, const std::string& text) {
  if (static_cast<int>(text.size()) >= length) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(to, text.c_str(), text.size() + 1);
  return CUDA_SUCCESS;
}
inline CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  BEGIN(cuDeviceGetName);
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  return write_text(name, length, "Fake GPU " + std::to_string(device));
}
inline CUresult cuDeviceGetPCIBusId(char* id, int length, CUdevice device) {
  BEGIN(cuDeviceGetPCIBusId);
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  return write_text(id, length, "0000:0" + std::to_string(device + 1) + ":00.0");
}
inline CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  BEGIN(cuDeviceGetUuid);
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  for (int i = 0; i < 16; ++i) uuid->bytes[i] = static_cast<char>(0xf0 + i);
  uuid->bytes[0] = static_cast<char>(device);
  return CUDA_SUCCESS;
}
inline CUresult cuDeviceGetAttribute(int* value, int attribute, CUdevice device) {
  BEGIN(cuDeviceGetAttribute);
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const auto set = world().attributes.find(attribute);
  if (set != world().attributes.end()) return *value = set->second, CUDA_SUCCESS;
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 9; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = 0; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 4; break;
    default: *value = 1;
  }
  return CUDA_SUCCESS;
}
inline CUresult cuDeviceTotalMem(std::size_t* nbytes, CUdevice device) {
  BEGIN(cuDeviceTotalMem);
  *nbytes = world().memory;
  return is_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
inline CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  BEGIN(cuDeviceCanAccessPeer);
  *can = device != peer ? world().peer_access : 0;
  return is_device(device) && is_device(peer) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
inline CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  BEGIN(cuDevicePrimaryCtxRetain);
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *context = &world().contexts[device];
  return CUDA_SUCCESS;
}
inline CUresult cuCtxGetCurrent(CUcontext* context) {
  BEGIN(cuCtxGetCurrent);
  *context = this_thread().context;
  return CUDA_SUCCESS;
}
inline CUresult cuCtxSetCurrent(CUcontext context) {
  BEGIN(cuCtxSetCurrent);
  this_thread().context = context;
  return CUDA_SUCCESS;
}
inline CUresult cuCtxGetDevice(CUdevice* device) {
  BEGIN_IN_CONTEXT(cuCtxGetDevice);
  *device = this_thread().context->device;
  return CUDA_SUCCESS;
}
inline CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned) {
  BEGIN_IN_CONTEXT(cuCtxEnablePeerAccess);
  if (peer == this_thread().context) return CUDA_ERROR_INVALID_DEVICE;
  if (world().peer_access == 0) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  const std::string pair =
      "peers " + std::to_string(this_thread().context->device) + std::to_string(peer->device);
  return world().calls[pair]++ == 0 ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

// --- Errors, and finding functions

struct Words {
  CUresult error;
  const char* name;
  const char* text;
};
#define WORDS(name, text) \
  { name, #name, text }
constexpr Words kWords[] = {
    WORDS(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    WORDS(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    WORDS(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    WORDS(CUDA_ERROR_STUB_LIBRARY, "CUDA driver is a stub library"),
    WORDS(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    WORDS(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    WORDS(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    WORDS(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"),
    WORDS(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "peer access is not supported between these two devices"),
    WORDS(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "the provided PTX was compiled with an unsupported toolchain."),
    WORDS(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    WORDS(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    WORDS(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    WORDS(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    WORDS(CUDA_ERROR_SYSTEM_NOT_READY, "system not yet initialized"),
    WORDS(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
          "system has unsupported display driver / cuda driver combination"),
    WORDS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"),
    WORDS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture"),
    WORDS(CUDA_ERROR_UNKNOWN, "unknown error"),
};
inline const Words* words_for(CUresult error) {
  const auto* const found = std::find_if(std::begin(kWords), std::end(kWords),
                                         [=](const Words& words) { return words.error == error; });
  return found != std::end(kWords) ? found : nullptr;
}
inline CUresult cuGetErrorName(CUresult error, const char** text) {
  const Words* const words = words_for(error);
  *text = words != nullptr ? words->name : nullptr;
  return words != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
inline CUresult cuGetErrorString(CUresult error, const char** text) {
  const Words* const words = words_for(error);
  *text = words != nullptr ? words->text : nullptr;
  return words != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace pc::cuda
