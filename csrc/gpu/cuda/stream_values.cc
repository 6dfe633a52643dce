#include "gpu/cuda/stream_values.h"

namespace pc::cuda {

Status write_value(const Driver& driver, CUstream stream, CUdeviceptr at, uint32_t value) {
  if (driver.cuStreamWriteValue32 == nullptr) return lacks_function(driver, "cuStreamWriteValue32");
  return driver.check(driver.cuStreamWriteValue32(stream, at, value, CU_STREAM_WRITE_VALUE_DEFAULT),
                      "cuStreamWriteValue32");
}

Status await_value(const Driver& driver, CUstream stream, CUdeviceptr at, uint32_t value) {
  if (driver.cuStreamWaitValue32 == nullptr) return lacks_function(driver, "cuStreamWaitValue32");
  return driver.check(driver.cuStreamWaitValue32(stream, at, value, CU_STREAM_WAIT_VALUE_GEQ),
                      "cuStreamWaitValue32");
}

}  // namespace pc::cuda
