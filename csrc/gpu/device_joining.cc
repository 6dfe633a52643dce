// Joins the ranks of a group on their GPUs, and splits a group that has joined.
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/gather_plain.h"
#include "gpu/device_calls.h"
#include "gpu/ipc/ipc_join.h"
#include "gpu/nccl/executor.h"
#include "gpu/nccl_id_exchange.h"

namespace pc {
namespace {

// Less than NCCL needs for the smallest group. NCCL does not report its need, which is some hundred
// MiB.
constexpr uint64_t kLeastFree_nbytes = uint64_t{64} << 20;

Status has_free_memory(const DeviceCalls::Resources& resources) {
  PC_ASSIGN_OR_RETURN(const cuda::Context context,
                      cuda::Context::primary(resources.driver, resources.device));
  PC_ASSIGN_OR_RETURN(const cuda::Context::FreeMemory free_memory, context.available_memory());
  if (free_memory.free_nbytes >= kLeastFree_nbytes) return Status::ok();
  return Status(Code::kUnsupported,
                "its GPU's memory is full: NCCL needs some hundred MiB, and " + context.available_text());
}

// Adds the available memory to an error, because NCCL reports a lack of memory only as "unhandled
// cuda error".
Status with_available_memory(const Status& why, const DeviceCalls::Resources& resources) {
  if (why.code() != Code::kSystem) return why;
  const Result<cuda::Context> context = cuda::Context::primary(resources.driver, resources.device);
  if (!context.is_ok()) return why;
  return Status(why.code(), why.message() + " (of the memory of GPU " + std::to_string(resources.device) +
                                ", " + context.value().available_text() + ")");
}

DeviceFacts facts_of(const DeviceCalls::Resources& resources) {
  DeviceFacts facts;
  if (!resources.why_not.is_ok()) return facts.lacks(resources.why_not.message()), facts;
  const Result<cuda::DeviceInfo> device = cuda::describe_device(*resources.driver, resources.device);
  if (!device.is_ok()) return facts.lacks(device.status().message()), facts;
  if (const Status free_memory = has_free_memory(resources); !free_memory.is_ok())
    return facts.lacks(free_memory.message()), facts;
  facts.set_gpu(device.value().uuid, resources.host_id);
  const nccl::Version& version = resources.api->version;
  facts.nccl_major = version.major;
  facts.nccl_minor = version.minor;
  facts.nccl_patch = version.patch;
  return facts;
}

// Calls `make(context)`, which waits for NCCL. NCCL waits forever for a rank that never arrives, so
// the context also ends the wait when the group ends.
template <class Make>
auto among_live_ranks(Communicator& group, Deadline deadline, Make&& make) {
  WaitContext context = group.waiting_until(deadline);
  const std::function<bool()>* const interrupted = context.interrupted;
  const std::function<bool()> in_vain = [&] {
    return !group.alive().is_ok() || (interrupted != nullptr && *interrupted && (*interrupted)());
  };
  context.interrupted = &in_vain;
  return make(context);
}

}  // namespace

Result<std::shared_ptr<DeviceCalls>> DeviceCalls::join(Communicator& group, const Resources& resources,
                                                       double timeout_s) {
  const Deadline deadline = Deadline::after(timeout_s < 0 ? group.timeout_s() : timeout_s);
  PC_ASSIGN_OR_RETURN(const std::vector<DeviceFacts> all,
                      gather_plain(group, facts_of(resources), "which way between GPUs", timeout_s));
  PC_TRY(can_go_by_nccl(all));
  // From here on other ranks may wait in NCCL, which does not report a rank that never arrives. So
  // a rank that fails must quit the group.
  const auto leave = [&](const Status& why) {
    const Status end = group.alive();
    if (end.is_ok()) group.quit(why);
    return end.is_ok() ? why : end;  // if the group has ended, its end is the cause
  };
  const Result<nccl::UniqueId> met =
      exchange_unique_id(group, *resources.api, std::max(deadline.remaining_s(), 0.0));
  if (!met.is_ok()) return met.status().code() == Code::kUnsupported ? met.status() : leave(met.status());
  const auto init = [&](const WaitContext& context) -> Result<std::shared_ptr<DeviceCalls>> {
    PC_ASSIGN_OR_RETURN(const cuda::Context gpu_context,
                        cuda::Context::primary(resources.driver, resources.device));
    PC_ASSIGN_OR_RETURN(const cuda::ContextGuard current, gpu_context.enter());
    PC_ASSIGN_OR_RETURN(nccl::Executor::Gpu gpu,
                        nccl::Executor::Gpu::take(gpu_context, resources.semaphores));
    nccl::Resources with{resources.api, resources.clock, resources.log};
    with.enter_thread = [gpu_context]() -> Result<std::shared_ptr<void>> {
      PC_ASSIGN_OR_RETURN(cuda::ContextGuard entered, gpu_context.enter());
      return std::shared_ptr<void>(std::make_shared<cuda::ContextGuard>(std::move(entered)));
    };
    PC_ASSIGN_OR_RETURN(
        std::unique_ptr<nccl::Communicator> made,
        nccl::Communicator::init(with, {met.value(), group.rank(), group.size()}, {}, context));
    auto executor = std::make_unique<nccl::Executor>(std::move(gpu), std::move(made), resources.abandoned);
    const std::shared_ptr<DeviceCalls> calls(new DeviceCalls(group, resources, std::move(executor)));
    PC_TRY(calls->first_failure());  // fails if the threads of `calls`, which monitor calls, cannot start
    return calls;
  };
  const Result<std::shared_ptr<DeviceCalls>> joined = among_live_ranks(group, deadline, init);
  if (!joined.is_ok()) return leave(with_available_memory(joined.status(), resources));
  return joined;
}

Result<std::shared_ptr<DeviceCalls>> DeviceCalls::join_ipc(Communicator& group, Runtime& runtime,
                                                           const Resources& resources, double timeout_s) {
  IpcResources with = resources.peers;
  with.driver = resources.driver;
  with.device = resources.device;
  with.log = resources.log;
  with.abandoned = resources.abandoned;
  PC_ASSIGN_OR_RETURN(std::unique_ptr<cuda::DeviceExecutor> executor,
                      pc::join_ipc(group, runtime, with, timeout_s));
  const std::shared_ptr<DeviceCalls> calls(new DeviceCalls(group, resources, std::move(executor)));
  const Status started = calls->first_failure();
  if (!started.is_ok()) group.quit(started);  // ends the group, because the other ranks have joined
  PC_TRY(started);
  return calls;
}

Result<std::shared_ptr<DeviceCalls>> DeviceCalls::split(Communicator* child, double timeout_s) {
  const Deadline deadline = Deadline::after(timeout_s < 0 ? group_.timeout_s() : timeout_s);
  const Result<FifoLock::Held> held = issue_order_.take(group_, deadline);
  const bool joins = child != nullptr && child->size() > 1;
  const int color = joins ? child->world_ranks()[0] : nccl::kNoColor;
  const auto cut = [&](const WaitContext& context) -> Result<std::shared_ptr<DeviceCalls>> {
    PC_ASSIGN_OR_RETURN(std::unique_ptr<cuda::DeviceExecutor> made,
                        executor_->split(color, joins ? child->rank() : 0, context));
    if (made == nullptr) return std::shared_ptr<DeviceCalls>();
    Resources resources;
    resources.device = device_;
    resources.clock = &clock_;
    resources.strict = strict_;
    resources.interrupted = interrupted_;
    resources.wait_limit = wait_limit_;
    resources.log = log_;
    const std::shared_ptr<DeviceCalls> calls(new DeviceCalls(*child, resources, std::move(made)));
    PC_TRY(calls->first_failure());
    return calls;
  };
  // If this rank cannot acquire the lock, it takes no part in the split. The other ranks wait for
  // it there, so this too ends the group.
  Result<std::shared_ptr<DeviceCalls>> calls =
      held.is_ok() ? among_live_ranks(group_, deadline, cut) : held.status();
  if (calls.is_ok()) return calls;
  const Status end = group_.alive();
  fail(end.is_ok() ? calls.status() : end, end.is_ok());
  wait_for_abort(kAbort);
  const Status first = first_failure();
  if (child != nullptr) child->quit(first);  // other ranks may have created the child already
  return first;
}

}  // namespace pc
