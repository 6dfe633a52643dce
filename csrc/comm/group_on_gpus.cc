#include "comm/group_on_gpus.h"

#include <algorithm>
#include <utility>

namespace pc {

bool GroupOnGpus::goes_by_nccl(const UserCall& call) const {
  return nccl_.is_ok() && call.kind == UserCall::Kind::kCollective &&
         nccl_.value()->can(call.request).is_ok();
}

Result<std::shared_ptr<StagedCalls>> GroupOnGpus::staged() {
  const std::lock_guard lock(mutex_);
  if (staged_ == nullptr) {
    PC_ASSIGN_OR_RETURN(staged_, StagedCalls::create(group_, driver_, device_, group_.timeout_s()));
  }
  return staged_;
}

Status GroupOnGpus::run(const CallOnGpu& call, double timeout_s, bool has_stream) {
  if (!goes_by_nccl(call.call)) {
    PC_ASSIGN_OR_RETURN(const std::shared_ptr<StagedCalls> staged, this->staged());
    return staged->run(call, timeout_s);
  }
  PC_ASSIGN_OR_RETURN(const std::shared_ptr<StartedDeviceCall> started,
                      nccl_.value()->launch({call.call.request, true, call.keeps}, timeout_s));
  return has_stream ? Status::ok() : started->wait(-1);
}

Result<std::shared_ptr<StartedDeviceCall>> GroupOnGpus::begin(const CallOnGpu& call, double timeout_s,
                                                              std::function<void()> on_end) {
  if (goes_by_nccl(call.call))
    return nccl_.value()->launch({call.call.request, false, call.keeps}, timeout_s, std::move(on_end));
  PC_ASSIGN_OR_RETURN(const std::shared_ptr<StagedCalls> staged, this->staged());
  return staged->begin(call, timeout_s, std::move(on_end));
}

Result<std::shared_ptr<GroupOnGpus>> GroupOnGpus::split(Communicator* child, double timeout_s) {
  PC_TRY(by_nccl());
  PC_ASSIGN_OR_RETURN(std::shared_ptr<DeviceCalls> calls, nccl_.value()->split(child, timeout_s));
  if (calls == nullptr) return std::shared_ptr<GroupOnGpus>();
  return std::make_shared<GroupOnGpus>(*child, driver_, device_, std::move(calls));
}

Status GroupOnGpus::close(double timeout_s) {
  const Deadline deadline = Deadline::after(timeout_s < 0 ? group_.timeout_s() : timeout_s);
  std::shared_ptr<StagedCalls> staged;
  {
    const std::lock_guard lock(mutex_);
    staged = staged_;
  }
  const Status through_host = staged == nullptr ? Status::ok() : staged->close(timeout_s);
  const Status by_nccl =
      nccl_.is_ok() ? nccl_.value()->close(std::max(deadline.remaining_s(), 0.0)) : Status::ok();
  return by_nccl.is_ok() ? through_host : by_nccl;
}

void GroupOnGpus::abort(const Status& why) {
  if (nccl_.is_ok()) nccl_.value()->abort(why);  // what goes through the host ends with the group
}

}  // namespace pc
