#include "cuda/mover.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "cuda/copy.h"
#include "cuda/device.h"

namespace pc::cuda {

Result<Mover> Mover::create(const Context& context, std::span<const std::byte> kernels) {
  PC_ASSIGN_OR_RETURN(const DeviceInfo info, describe_device(context.driver(), context.ordinal()));
  PC_ASSIGN_OR_RETURN(const ContextGuard current, context.enter());
  Result<Functions> loaded = load(context, kernels);
  if (!loaded.is_ok() && loaded.status().code() != Code::kUnsupported) return loaded.status();
  return Mover(context, static_cast<uint32_t>(std::max(info.multiprocessors, 1)), std::move(loaded));
}

Mover::Mover(Context context, uint32_t multiprocessors, Result<Functions> kernels)
    : context_(std::move(context)),
      multiprocessors_(multiprocessors),
      can_reduce_(kernels.status()) {
  if (kernels.is_ok()) kernels_ = std::move(kernels).value();
}

Result<Mover::Functions> Mover::load(const Context& context, std::span<const std::byte> kernels) {
  PC_ASSIGN_OR_RETURN(const Kernels loaded, Kernels::load(context.shared_driver(), kernels));
  Functions functions;
  for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
    for (int op = 0; op < kReduceOpCount; ++op) {
      const std::optional<std::string> name =
          reduce_kernel(static_cast<DType>(dtype), static_cast<ReduceOp>(op));
      if (!name || functions.count(*name) != 0) continue;
      PC_ASSIGN_OR_RETURN(functions[*name], loaded.find(*name));
    }
  }
  return functions;
}

Status Mover::reduce(const DeviceReduction& reduction, CUstream stream) {
  PC_TRY(can_reduce_);
  PC_ASSIGN_OR_RETURN(const device::ReduceArguments arguments, reduce_arguments(reduction));
  const std::string name = reduce_kernel(reduction.dtype, reduction.how.op).value_or("");
  const auto kernel = kernels_.find(name);
  if (kernel == kernels_.end()) return Status(Code::kInternal, "no kernel was loaded of the name " + name);
  const pc::LaunchShape shape = launch_shape(reduction.count * size_of(reduction.dtype), multiprocessors_);
  return launch(context_.driver(), kernel->second, {shape.blocks, shape.threads}, stream, arguments);
}

Status Mover::copy(void* to, const void* from, std::size_t nbytes, CUstream stream) {
  return copy_on_device(context_.driver(), reinterpret_cast<CUdeviceptr>(to),
                        reinterpret_cast<CUdeviceptr>(from), nbytes, stream);
}

}  // namespace pc::cuda
