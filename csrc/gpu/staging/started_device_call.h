// A call of arrays on a GPU that goes on without its caller, whatever moves it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/clock.h"
#include "gpu/cuda/driver.h"
#include "operation/async_work.h"

namespace pc {

// Thread-safety: all methods.
class StartedDeviceCall {
 public:
  StartedDeviceCall(const StartedDeviceCall&) = delete;
  StartedDeviceCall& operator=(const StartedDeviceCall&) = delete;
  virtual ~StartedDeviceCall() = default;
  // What is queued on `stream` from now on comes after the call. The host waits for the call only where the host moves the
  // data. Null: `timeout_s` (negative: none) was over before, or somebody pressed Ctrl-C, and the call goes on.
  virtual std::optional<Status> precede_within(double timeout_s, cuda::CUstream stream) = 0;
  Status precede(cuda::CUstream stream) {
    return precede_within(-1, stream).value_or(Status(Code::kInterrupted, "interrupted"));
  }
  // Whether the host waits for nothing there.
  virtual bool precedes_at_once() const { return done(); }
  // Waits in this thread until it has ended on the GPU and all ranks have made the same call. kTimeout leaves it running.
  virtual Status wait(double timeout_s) = 0;
  virtual bool done() const = 0;
  // Nobody is going to ask how it ends.
  virtual void leave_alone() = 0;

  enum class State : uint8_t { kRunning, kDone, kFailed };
  State state() const { return state_; }  // may be behind done() for some milliseconds
  const std::string& operation() const { return operation_; }
  uint64_t sequence() const {
    return on_cpu_ ? on_cpu_->sequence() : 0;
  }  // 0: a message, or nothing compares it
  TimePoint began() const { return on_cpu_ ? on_cpu_->began() : made_; }
  TimePoint ended_at() const;  // now, if state() is kRunning
  Status why() const;          // once state() is kFailed. Asks nobody

 protected:
  StartedDeviceCall() = default;
  void end(State how, const Status& why = {});  // the first word counts
  std::shared_ptr<AsyncWork> on_cpu_;  // compares the ranks meanwhile, or moves the data; may be null
  std::string operation_;

 private:
  const TimePoint made_ = now();
  mutable std::mutex why_mutex_;
  Status why_;  // guarded by why_mutex_
  std::atomic<State> state_{State::kRunning};
  std::atomic<TimePoint::rep> ended_at_{0};  // set before state_
};

}  // namespace pc
