// The handle of a call that goes on without its caller, wherever its arrays lie.
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
  std::function<void(const Status& outcome)> on_end = {};  // HostWork::Start
  std::shared_ptr<const void> keeps =
      {};  // what arrays on a GPU need to live, until the call has ended; others need nothing
};

// Thread-safety: all methods. The call's memory is the call's until it has ended, also if nobody holds this any more.
class AsyncWork {
 public:
  // Of whoever waits. Who does not keep the runtime alive must look on: its end ends the call.
  enum class Part : uint8_t { kDrives, kLooksOn };
  AsyncWork() = default;
  AsyncWork(const AsyncWork&) = delete;
  AsyncWork& operator=(const AsyncWork&) = delete;
  virtual ~AsyncWork() = default;

  // wait() would not wait for other ranks. If this is so, it is so for all earlier calls of the group, messages apart.
  virtual bool done() const = 0;
  // How it ended, if it has. It may be behind done() for some milliseconds.
  virtual std::optional<Status> outcome() const = 0;
  // How the call ended. Null: `context` ended first, or its probe said so, and the call goes on. An error while outcome() is
  // null is not how it ended: the wait was refused, as is one from inside a probe of its group.
  virtual std::optional<Status> wait(const WaitContext& context, Part part = Part::kDrives) = 0;
  // What is queued on that stream of a GPU from now on comes after the call. The host waits for the call only where the host
  // moves the data. Null: as wait().
  virtual std::optional<Status> precede(const WaitContext& context, void* /*stream*/) {
    return wait(context);
  }
  virtual bool precedes_at_once() const { return done(); }  // whether the host waits for nothing there
  // Nobody is going to ask how it ends. If it fails, the next call on the group raises that, or else it is logged.
  virtual void detach() = 0;

  virtual const std::string& operation() const = 0;
  virtual uint64_t sequence() const = 0;  // 0: a message, or nothing compares it
  virtual TimePoint began() const = 0;
  virtual TimePoint ended_at() const = 0;  // now, if it has not ended
};

}  // namespace pc
