// The handle of a call with arrays on a GPU, for every backend.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/deadline.h"
#include "operation/async_work.h"

namespace pc {

// Thread-safety: all methods. A wait uses only the deadline of its context. It detects Ctrl-C and
// the end of the group through the group's own context.
class GpuWork : public AsyncWork {
 public:
  // Waits until the call has ended or the deadline passes. If it returns kTimeout or kInterrupted
  // while outcome() is empty, the call continues.
  virtual Status until_ended(Deadline deadline) = 0;
  Status wait(double timeout_s) {  // negative: no limit
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
  void end(const Status& outcome);  // keeps the first outcome
  // the CPU call that compares the ranks' calls or moves the data; may be null
  std::shared_ptr<AsyncWork> on_cpu_;
  std::string operation_;

 private:
  const TimePoint made_ = now();
  mutable std::mutex outcome_mutex_;  // guards the members below; no other object is called while it is held
  std::optional<Status> outcome_;
  TimePoint ended_at_{};
};

}  // namespace pc
