#include "cuda/mover.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "cuda/copy.h"
#include "cuda/device.h"

namespace pc::cuda {

Result<Mover> Mover::create(const Context& context, std::span<const std::byte> kernels) {
  PC_ASSIGN_OR_RETURN(const DeviceInfo info, describe_device(context.driver(), context.ordinal()));
  PC_ASSIGN_OR_RETURN(const ContextGuard current, context.enter());
  Result<Kernels> loaded = Kernels::load(context.shared_driver(), kernels);
  if (!loaded.is_ok() && loaded.status().code() != Code::kUnsupported) return loaded.status();
  return Mover(context, static_cast<uint32_t>(std::max(info.multiprocessors, 1)), std::move(loaded));
}

Mover::Mover(Context context, uint32_t multiprocessors, Result<Kernels> kernels)
    : context_(std::move(context)),
      multiprocessors_(multiprocessors),
      can_reduce_(kernels.status()) {
  if (kernels.is_ok()) kernels_.emplace(std::move(kernels).value());
}

Result<CUfunction> Mover::find(const std::string& name) {
  PC_TRY(can_reduce_);
  if (const auto known = found_.find(name); known != found_.end()) return known->second;
  PC_ASSIGN_OR_RETURN(CUfunction kernel, kernels_->find(name));
  found_[name] = kernel;
  return kernel;
}

Status Mover::reduce(const DeviceReduction& reduction, CUstream stream) {
  PC_ASSIGN_OR_RETURN(const device::ReduceArguments arguments, reduce_arguments(reduction));
  const std::optional<std::string> name = reduce_kernel(reduction.dtype, reduction.how.op);
  PC_ASSIGN_OR_RETURN(const CUfunction kernel, find(name.value_or("")));
  const pc::LaunchShape shape = launch_shape(reduction.count * size_of(reduction.dtype), multiprocessors_);
  return launch(context_.driver(), kernel, {shape.blocks, shape.threads}, stream, arguments);
}

Status Mover::copy(void* to, const void* from, std::size_t nbytes, CUstream stream) {
  return copy_on_device(context_.driver(), reinterpret_cast<CUdeviceptr>(to),
                        reinterpret_cast<CUdeviceptr>(from), nbytes, stream);
}

}  // namespace pc::cuda
