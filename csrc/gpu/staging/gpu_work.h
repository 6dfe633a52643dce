// The handle of a call of arrays on a GPU, whatever moves them.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/deadline.h"
#include "operation/async_work.h"

namespace pc {

// Thread-safety: all methods. Of the context of a wait it takes the deadline; Ctrl-C and the end of the group it hears as the group
// does.
class GpuWork : public AsyncWork {
 public:
  // wait() until then. kTimeout and kInterrupted leave the call running, if outcome() is null.
  virtual Status until_ended(Deadline deadline) = 0;
  Status wait(double timeout_s) {  // negative: without end
    return until_ended(timeout_s < 0 ? Deadline(TimePoint::max()) : Deadline::after(timeout_s));
  }
  std::optional<Status> wait(const WaitContext& context, Part part = Part::kDrives) final;
  using AsyncWork::precede;
  Status precede(void* stream) {
    return precede({Deadline(TimePoint::max())}, stream).value_or(Status(Code::kInterrupted, "interrupted"));
  }
  std::optional<Status> outcome() const final;
  bool ended_well() const;
  const std::string& operation() const final { return operation_; }
  uint64_t sequence() const final { return on_cpu_ ? on_cpu_->sequence() : 0; }
  TimePoint began() const final { return on_cpu_ ? on_cpu_->began() : made_; }
  TimePoint ended_at() const final;

 protected:
  void end(const Status& outcome);     // the first word counts
  std::shared_ptr<AsyncWork> on_cpu_;  // compares the ranks meanwhile, or moves the data; may be null
  std::string operation_;

 private:
  const TimePoint made_ = now();
  mutable std::mutex outcome_mutex_;  // guards what follows; nobody is asked with it
  std::optional<Status> outcome_;
  TimePoint ended_at_{};
};

}  // namespace pc
