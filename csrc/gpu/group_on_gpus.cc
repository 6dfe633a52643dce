#include "gpu/group_on_gpus.h"

#include <algorithm>
#include <utility>

namespace pc {

DeviceCalls* GroupOnGpus::direct(const UserCall& call) const {
  if (call.kind != UserCall::Kind::kCollective) return nullptr;
  for (const Backend* const backend : {&nccl_, &peers_}) {
    if (backend->is_ok() && backend->value()->can(call.request).is_ok()) return backend->value().get();
  }
  return nullptr;
}

Status GroupOnGpus::by_nccl(const UserCall& call) const {
  return nccl_.is_ok() ? nccl_.value()->can(call.request) : nccl_.status();
}

bool GroupOnGpus::is_in_stream_order(const UserCall& call) const {
  const DeviceCalls* const direct = this->direct(call);
  return direct != nullptr && direct->is_in_stream_order();
}

std::string_view GroupOnGpus::backend_of(const UserCall& call) const {
  const DeviceCalls* const direct = this->direct(call);
  return direct == nullptr ? "staged" : direct->name();
}

std::string GroupOnGpus::explain(Collective collective) const {
  constexpr const char* kThroughHost =
      "through the host: copied to pinned memory, called there, and copied back";
  Request usual;
  usual.collective = collective;
  usual.in.dtype = usual.out.dtype = DType::kF32;
  std::string why_not;
  const auto goes = [&](const Backend& backend, const char* name) {
    const Status can = backend.is_ok() ? backend.value()->can(usual) : backend.status();
    if (!can.is_ok()) why_not += std::string("\nnot ") + name + ": " + can.message();
    return can.is_ok();
  };
  if (goes(nccl_, "by NCCL"))
    return "by NCCL, queued on the array's stream\nwhat NCCL has not (16-bit integers, bits and truth, "
           "minima and maxima of "
           "floats: docs/gpu.md) goes through the host";
  if (goes(peers_, "from array to array"))
    return "from array to array: the ranks read and write each other's memory, and the host waits" + why_not;
  return kThroughHost + why_not;
}

Result<std::shared_ptr<StagedCalls>> GroupOnGpus::staged() {
  const std::lock_guard lock(mutex_);
  if (staged_ == nullptr) {
    PC_ASSIGN_OR_RETURN(staged_, StagedCalls::create(group_, driver_, device_, group_.timeout_s()));
  }
  return staged_;
}

Status GroupOnGpus::run(const UserCall& call, double timeout_s) {
  DeviceCalls* const direct = this->direct(call);
  if (direct == nullptr) {
    PC_ASSIGN_OR_RETURN(const std::shared_ptr<StagedCalls> staged, this->staged());
    return staged->run(call, timeout_s);
  }
  return direct->run({call.request, true, call.keeps}, timeout_s);
}

Result<std::shared_ptr<GpuWork>> GroupOnGpus::begin(const UserCall& call, double timeout_s,
                                                    std::function<void(const Status&)> on_end,
                                                    bool on_caller_stream) {
  if (DeviceCalls* const direct = this->direct(call); direct != nullptr)
    return direct->launch({call.request, on_caller_stream, call.keeps}, timeout_s, std::move(on_end));
  PC_ASSIGN_OR_RETURN(const std::shared_ptr<StagedCalls> staged, this->staged());
  return staged->begin(call, timeout_s, std::move(on_end));
}

Result<std::shared_ptr<GroupOnGpus>> GroupOnGpus::split(Communicator* child, double timeout_s) {
  PC_TRY(by_nccl());
  PC_ASSIGN_OR_RETURN(std::shared_ptr<DeviceCalls> calls, nccl_.value()->split(child, timeout_s));
  if (calls == nullptr) return std::shared_ptr<GroupOnGpus>();
  return std::make_shared<GroupOnGpus>(*child, driver_, device_, std::move(calls),
                                       Status(Code::kUnsupported, "calls of this group go by NCCL"));
}

Status GroupOnGpus::settle(double timeout_s) {
  const Deadline deadline = Deadline::after(timeout_s < 0 ? group_.timeout_s() : timeout_s);
  for (const Backend* const backend : {&nccl_, &peers_}) {
    if (backend->is_ok()) PC_TRY(backend->value()->settle(std::max(deadline.remaining_s(), 0.0)));
  }
  return Status::ok();
}

Status GroupOnGpus::close(double timeout_s) {
  const Deadline deadline = Deadline::after(timeout_s < 0 ? group_.timeout_s() : timeout_s);
  std::shared_ptr<StagedCalls> staged;
  {
    const std::lock_guard lock(mutex_);
    staged = staged_;
  }
  Status first = staged == nullptr ? Status::ok() : staged->close(timeout_s);
  for (const Backend* const backend : {&peers_, &nccl_}) {
    const Status closed =
        backend->is_ok() ? backend->value()->close(std::max(deadline.remaining_s(), 0.0)) : Status::ok();
    if (first.is_ok()) first = closed;
  }
  return first;
}

void GroupOnGpus::begin_abort(const Status& why) {
  for (const Backend* const backend : {&nccl_, &peers_}) {
    if (backend->is_ok()) backend->value()->begin_abort(why);
  }
}

void GroupOnGpus::abort(const Status& why) {
  for (const Backend* const backend : {&nccl_, &peers_}) {
    if (backend->is_ok()) backend->value()->abort(why);
  }  // calls through the host end with the group
}

}  // namespace pc
