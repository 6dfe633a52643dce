#include "gpu/staging/gpu_work.h"

namespace pc {

std::optional<Status> GpuWork::wait(const WaitContext& context, Part /*part*/) {
  const Status ended = until_ended(context.deadline);
  const bool goes_on = ended.code() == Code::kTimeout || ended.code() == Code::kInterrupted;
  return goes_on && !outcome() ? std::nullopt : std::optional(ended);
}

std::optional<Status> GpuWork::outcome() const {
  const std::lock_guard lock(outcome_mutex_);
  return outcome_;
}

bool GpuWork::ended_well() const {
  const std::lock_guard lock(outcome_mutex_);
  return outcome_ && outcome_->is_ok();
}

TimePoint GpuWork::ended_at() const {
  const std::lock_guard lock(outcome_mutex_);
  return outcome_ ? ended_at_ : now();
}

void GpuWork::end(const Status& outcome) {
  const std::lock_guard lock(outcome_mutex_);
  if (outcome_) return;
  outcome_ = outcome;
  ended_at_ = now();
}

}  // namespace pc
