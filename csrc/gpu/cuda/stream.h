// Queues of work for a GPU: streams of this library, and queries about any stream.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "engine/request.h"
#include "gpu/cuda/context.h"
#include "gpu/cuda/driver.h"

namespace pc::cuda {

// A stream of this library, which does not wait for the legacy default stream. Queued work
// continues after the stream is destroyed; the memory that the work uses must stay valid until the
// work is done. Thread-safety: get() from any thread, and the driver accepts work from any thread;
// one owner otherwise. The destructor calls the driver, so the stream must be destroyed before the
// process ends and must not be static.
class Stream {
 public:
  static Result<Stream> create(const Context& context);
  Stream(Stream&& other) noexcept
      : context_(std::move(other.context_)),
        stream_(std::exchange(other.stream_, nullptr)) {}
  Stream& operator=(Stream&&) = delete;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream();

  CUstream get() const { return stream_; }
  const Context& context() const { return context_; }

 private:
  Stream(Context context, CUstream stream) : context_(std::move(context)), stream_(stream) {}
  Context context_;
  CUstream stream_;
};

// The stream on which the caller produces a call's arrays and uses them after the call.
inline CUstream stream_of(const Request& call) {
  return static_cast<CUstream>(call.stream.value_or(nullptr));
}
// Makes work that is queued on `stream` from now on wait for the work before the last record of
// `event`. The host does not wait. The stream's context must be current.
Status stream_waits(const Driver& driver, CUstream stream, CUevent event);
// Returns a number that no other stream of this process has or will have. Handles, in contrast, are
// reused. Returns none if the driver does not provide the number.
std::optional<uint64_t> id_of(const Driver& driver, CUstream stream);
// Returns true if all work queued on the stream is done. The stream must not be in a capture.
Result<bool> is_done(const Driver& driver, CUstream stream);
// Returns true if work queued on the stream is captured into a CUDA graph instead of being run.
// Returns kUnsupported if an earlier call invalidated the capture.
Result<bool> is_capturing(const Driver& driver, CUstream stream);

}  // namespace pc::cuda
