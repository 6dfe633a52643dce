// Queues of work for a GPU: our own, and what can be asked of anybody's.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "engine/request.h"
#include "gpu/cuda/context.h"
#include "gpu/cuda/driver.h"

namespace pc::cuda {

// A stream of ours, which does not wait for the legacy default stream. Destroying it lets what is queued go on; memory that this
// work uses must stay until it is done.
// Thread-safety: get() from any thread, and the driver takes work from any thread; one owner otherwise. The destructor calls
// the driver, so the stream must go before the process ends: no static.
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

// On which a call's arrays are made, and used afterwards.
inline CUstream stream_of(const Request& call) {
  return static_cast<CUstream>(call.stream.value_or(nullptr));
}
// What is queued on `stream` after this waits for what `event` was last recorded for. Costs the host nothing. The stream's
// context must be current.
Status stream_waits(const Driver& driver, CUstream stream, CUevent event);
// A number that no other stream of this process has, or will have: handles come again. None: the driver does not tell.
std::optional<uint64_t> id_of(const Driver& driver, CUstream stream);
// Whether everything is done that was queued. Not for a stream that is being captured.
Result<bool> is_done(const Driver& driver, CUstream stream);
// Whether work goes into a CUDA graph instead of being done. kUnsupported: the capture was invalidated by an earlier call.
Result<bool> is_capturing(const Driver& driver, CUstream stream);

}  // namespace pc::cuda
