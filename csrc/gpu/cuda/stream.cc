#include "gpu/cuda/stream.h"

#include "gpu/cuda/capture_mode.h"

namespace pc::cuda {

Result<Stream> Stream::create(const Context& context) {
  PC_ASSIGN_OR_RETURN(const ContextGuard current, context.enter());
  const OwnCaptureMode own(context.driver());
  CUstream stream = nullptr;
  PC_TRY(context.driver().check(context.driver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING),
                                "cuStreamCreate"));
  return Stream(context, stream);
}

Stream::~Stream() {
  if (stream_ == nullptr || !context_.driver().is_usable()) return;
  const Result<ContextGuard> current = context_.enter();
  const OwnCaptureMode own(context_.driver());
  if (current.is_ok()) (void)context_.driver().cuStreamDestroy(stream_);
}

Status stream_waits(const Driver& driver, CUstream stream, CUevent event) {
  return driver.check(driver.cuStreamWaitEvent(stream, event, 0), "cuStreamWaitEvent");
}

Result<bool> is_done(const Driver& driver, CUstream stream) {
  const OwnCaptureMode own(driver);
  const CUresult result = driver.cuStreamQuery(stream);
  if (result == CUDA_ERROR_NOT_READY) return false;
  PC_TRY(driver.check(result, "cuStreamQuery"));
  return true;
}

std::optional<uint64_t> id_of(const Driver& driver, CUstream stream) {
  unsigned long long id = 0;
  if (driver.cuStreamGetId == nullptr || driver.cuStreamGetId(stream, &id) != CUDA_SUCCESS)
    return std::nullopt;
  return id;
}

Result<bool> is_capturing(const Driver& driver, CUstream stream) {
  int status = CU_STREAM_CAPTURE_STATUS_NONE;
  PC_TRY(driver.check(driver.cuStreamIsCapturing(stream, &status), "cuStreamIsCapturing"));
  if (status == CU_STREAM_CAPTURE_STATUS_INVALIDATED) {
    return cuda_error(driver, "cuStreamIsCapturing", CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  }
  return status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

}  // namespace pc::cuda
