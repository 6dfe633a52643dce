// The handle of an asynchronous call, with arrays on the host or on a GPU.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/waiter.h"

namespace pc {

struct AsyncOptions {
  double timeout_s = -1;  // from the beginning of the call; negative: the group's default
  std::function<void(const Status& outcome)> on_end = {};  // see HostWork::Start
  std::shared_ptr<const void> keeps =
      {};  // keeps what arrays on a GPU need alive until the call has ended; other arrays need nothing
};

// Thread-safety: all methods. The call owns its memory until it has ended, even if no handle is
// left.
class AsyncWork {
 public:
  // The role of the waiting thread. A thread that does not keep the runtime alive must use
  // kLooksOn: the end of the runtime ends the call.
  enum class Part : uint8_t { kDrives, kLooksOn };
  AsyncWork() = default;
  AsyncWork(const AsyncWork&) = delete;
  AsyncWork& operator=(const AsyncWork&) = delete;
  virtual ~AsyncWork() = default;

  // Returns true if wait() would not wait for other ranks. Then this also holds for all earlier
  // calls of the group, except messages.
  virtual bool done() const = 0;
  // Returns how the call ended, or null if it has not. It may lag behind done() by some
  // milliseconds.
  virtual std::optional<Status> outcome() const = 0;
  // Returns how the call ended, or null if `context` or its probe ended the wait first; then the
  // call continues. An error while outcome() is null is not the call's: the wait was refused, for
  // example inside a probe of its group.
  virtual std::optional<Status> wait(const WaitContext& context, Part part = Part::kDrives) = 0;
  // Orders what is queued on that GPU stream from now on after the call. The host waits for the
  // call only if the host moves the data. Returns null as wait() does.
  virtual std::optional<Status> precede(const WaitContext& context, void* /*stream*/) {
    return wait(context);
  }
  // returns true if precede() would not make the host wait
  virtual bool precedes_at_once() const { return done(); }
  // The caller will not request the outcome. If the call fails, the next call on the group raises
  // it, or it is logged.
  virtual void detach() = 0;

  virtual const std::string& operation() const = 0;
  virtual uint64_t sequence() const = 0;  // 0: a message, or a call that is not compared
  virtual TimePoint began() const = 0;
  virtual TimePoint ended_at() const = 0;  // the current time if it has not ended
};

}  // namespace pc
