#include "gpu/cuda/kernels.h"

#include "gpu/cuda/capture_mode.h"

namespace pc::cuda {
namespace {

Status kernel_error(const Driver& driver, const std::string& call, CUresult result) {
  const Status error = cuda_error(driver, call, result);
  if (result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION || result == CUDA_ERROR_NO_BINARY_FOR_GPU) {
    return Status(Code::kUnsupported,
                  "the driver (CUDA " + cuda_version_text(driver.version) +
                      ") is too old for the built-in kernels, or they were not compiled for this GPU: " +
                      error.message() + "; install a newer NVIDIA driver");
  }
  return error;
}

}  // namespace

Result<Kernels> Kernels::load(std::shared_ptr<const Driver> driver, std::span<const std::byte> image) {
  if (image.empty()) {
    return Status(
        Code::kUnsupported,
        "this build has no kernels for GPUs: it was compiled without nvcc, or with PYCOLLECTIVE_CUDA=OFF");
  }
  const OwnCaptureMode own(*driver);
  CUlibrary library = nullptr;
  const CUresult result =
      driver->cuLibraryLoadData(&library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
  if (result != CUDA_SUCCESS) return kernel_error(*driver, "cuLibraryLoadData", result);
  return Kernels(std::move(driver), library);
}

Result<CUfunction> Kernels::find(const std::string& name) const {
  const OwnCaptureMode own(*driver_);
  CUkernel kernel = nullptr;
  CUresult result = driver_->cuLibraryGetKernel(&kernel, library_, name.c_str());
  if (result == CUDA_ERROR_NOT_FOUND) {
    return Status(Code::kInternal, "the built-in kernels have none of the name " + name);
  }
  if (result != CUDA_SUCCESS) return kernel_error(*driver_, "cuLibraryGetKernel(" + name + ")", result);
  CUfunction function = nullptr;
  result = driver_->cuKernelGetFunction(&function, kernel);
  if (result != CUDA_SUCCESS) return kernel_error(*driver_, "cuKernelGetFunction(" + name + ")", result);
  if (driver_->cuFuncLoad != nullptr) {
    result = driver_->cuFuncLoad(function);
    if (result != CUDA_SUCCESS) return kernel_error(*driver_, "cuFuncLoad(" + name + ")", result);
  }
  return function;
}

Status launch(const Driver& driver, CUfunction kernel, const LaunchShape& shape, CUstream stream,
              std::span<void*> arguments) {
  const CUresult result = driver.cuLaunchKernel(kernel, shape.blocks, 1, 1, shape.threads, 1, 1,
                                                shape.shared_nbytes, stream, arguments.data(), nullptr);
  return result == CUDA_SUCCESS ? Status::ok() : kernel_error(driver, "cuLaunchKernel", result);
}

}  // namespace pc::cuda
