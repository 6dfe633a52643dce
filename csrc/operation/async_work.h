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
      {};  // keeps arrays on a GPU alive until the call has ended; not used for arrays on the host
};

// Thread-safety: all methods. The call uses its arrays until it has ended, even if no handle is
// left.
class AsyncWork {
 public:
  // The role of the thread that calls wait(): with kDrives this thread drives the call, with
  // kWaitsOnly another thread must drive it. A thread that does not keep the runtime alive must use
  // kWaitsOnly; the end of the runtime ends that thread's wait.
  enum class Part : uint8_t { kDrives, kWaitsOnly };
  AsyncWork() = default;
  AsyncWork(const AsyncWork&) = delete;
  AsyncWork& operator=(const AsyncWork&) = delete;
  virtual ~AsyncWork() = default;

  // Returns true if wait() would not wait for other ranks. All earlier calls of the group, except
  // messages, are then done too.
  virtual bool done() const = 0;
  // Returns how the call ended, or null if it has not ended. The outcome may appear some
  // milliseconds after done() becomes true.
  virtual std::optional<Status> outcome() const = 0;
  // Returns how the call ended. Returns null if `context` or its probe ended the wait first; the
  // call then continues. An error that is returned while outcome() is null is not the call's own:
  // wait() was refused, for example inside a probe of the same group.
  virtual std::optional<Status> wait(const WaitContext& context, Part part = Part::kDrives) = 0;
  // Makes everything that is queued on `stream` from now on run after the call. The calling thread
  // waits only if the call's data moves through the host. The return value is that of wait().
  virtual std::optional<Status> precede(const WaitContext& context, void* /*stream*/) {
    return wait(context);
  }
  // returns true if precede() would not wait
  virtual bool precedes_at_once() const { return done(); }
  // The caller will not request the outcome. A failure is raised by the next call on the group, or
  // logged.
  virtual void detach() = 0;

  virtual const std::string& operation() const = 0;
  virtual uint64_t sequence() const = 0;  // 0: a message, or a call that is not compared
  virtual TimePoint began() const = 0;
  virtual TimePoint ended_at() const = 0;  // the current time while the call runs
};

}  // namespace pc
