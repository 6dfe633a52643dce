#include "engine/cpu_executor.h"

#include "kernels/reduce.h"

namespace pc {

CpuExecutor::~CpuExecutor() { groups_->abort(Status(Code::kAborted, "the executor was closed")); }

bool CpuExecutor::supports(const Request& request, Rank) const {
  if (request.in.device.type != DeviceType::kCpu || request.out.device.type != DeviceType::kCpu) return false;
  return !reduces(request.collective) || can_reduce(request.in.dtype, request.op);
}

void CpuExecutor::cancel(uint32_t group, uint64_t sequence, const Status& why) {
  groups_->cancel(group, sequence, why);
}
void CpuExecutor::peer_left(Rank world) { groups_->peer_left(world); }
void CpuExecutor::abort(uint32_t group, const Status& why) { groups_->abort(group, why); }
void CpuExecutor::close(uint32_t group) { groups_->close(group); }
void CpuExecutor::abort(const Status& why) noexcept { groups_->abort(why); }

}  // namespace pc
