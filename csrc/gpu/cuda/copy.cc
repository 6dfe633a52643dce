#include "gpu/cuda/copy.h"

#include "gpu/cuda/nbytes_text.h"

namespace pc::cuda {
namespace {

Status ended(const Driver& driver, const char* call, std::size_t nbytes, CUresult result) {
  if (result == CUDA_SUCCESS) return Status::ok();
  return cuda_error(driver, std::string(call) + "(" + nbytes_text(nbytes) + ")", result);
}

}  // namespace

Status copy_to_device(const Driver& driver, CUdeviceptr to, std::span<const std::byte> from,
                      CUstream stream) {
  if (from.empty()) return Status::ok();
  return ended(driver, "cuMemcpyHtoDAsync", from.size(),
               driver.cuMemcpyHtoDAsync(to, from.data(), from.size(), stream));
}

Status copy_to_host(const Driver& driver, std::span<std::byte> to, CUdeviceptr from, CUstream stream) {
  if (to.empty()) return Status::ok();
  return ended(driver, "cuMemcpyDtoHAsync", to.size(),
               driver.cuMemcpyDtoHAsync(to.data(), from, to.size(), stream));
}

Status copy_on_device(const Driver& driver, CUdeviceptr to, CUdeviceptr from, std::size_t nbytes,
                      CUstream stream) {
  if (nbytes == 0) return Status::ok();
  return ended(driver, "cuMemcpyDtoDAsync", nbytes, driver.cuMemcpyDtoDAsync(to, from, nbytes, stream));
}

Status fill_bytes(const Driver& driver, CUdeviceptr to, unsigned char value, std::size_t nbytes,
                  CUstream stream) {
  if (nbytes == 0) return Status::ok();
  return ended(driver, "cuMemsetD8Async", nbytes, driver.cuMemsetD8Async(to, value, nbytes, stream));
}

}  // namespace pc::cuda
