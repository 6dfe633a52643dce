#include "bench/gpu.h"

#include <sched.h>

#include <utility>

namespace pc::bench {

Result<std::unique_ptr<Gpu>> Gpu::open(std::shared_ptr<const cuda::Driver> driver, int ordinal,
                                       Communicator& group) {
  if (ordinal >= driver->device_count)
    return Status(Code::kInvalidArgument, "there is no GPU " + std::to_string(ordinal) + " here: there are " +
                                              std::to_string(driver->device_count));
  PC_ASSIGN_OR_RETURN(cuda::DeviceInfo info, cuda::describe_device(*driver, ordinal));
  PC_ASSIGN_OR_RETURN(cuda::Context context, cuda::Context::primary(std::move(driver), ordinal));
  PC_ASSIGN_OR_RETURN(cuda::ContextGuard current, context.enter());
  PC_ASSIGN_OR_RETURN(cuda::Stream stream, cuda::Stream::create(context));
  return std::unique_ptr<Gpu>(
      new Gpu(group, std::move(context), std::move(info), std::move(current), std::move(stream)));
}

Status Gpu::drain() const {
  constexpr int kBetweenLooks = 256;  // polls between two checks of the group and the deadline
  const Deadline deadline = Deadline::after(group_.timeout_s());
  for (int polls = 1;; ++polls) {
    PC_ASSIGN_OR_RETURN(const bool done, cuda::is_done(driver_of(), stream()));
    if (done) return Status::ok();
    if (polls % kBetweenLooks == 0) {
      PC_TRY(group_.alive());
      if (deadline.expired())
        return Status(Code::kTimeout, "what was queued on the GPU has not ended in time");
    }
    ::sched_yield();  // NCCL has threads, and other ranks may need this core
  }
}

}  // namespace pc::bench
