#include "gpu/cuda/device_kernels.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "gpu/cuda/copy.h"
#include "gpu/cuda/device.h"

namespace pc::cuda {

Result<DeviceKernels> DeviceKernels::create(const Context& context, std::span<const std::byte> kernels) {
  PC_ASSIGN_OR_RETURN(const DeviceInfo info, describe_device(context.driver(), context.ordinal()));
  PC_ASSIGN_OR_RETURN(const ContextGuard current, context.enter());
  Result<Functions> loaded = load(context, kernels);
  if (!loaded.is_ok() && loaded.status().code() != Code::kUnsupported) return loaded.status();
  return DeviceKernels(context, static_cast<uint32_t>(std::max(info.multiprocessors, 1)), std::move(loaded));
}

DeviceKernels::DeviceKernels(Context context, uint32_t multiprocessors, Result<Functions> kernels)
    : context_(std::move(context)),
      multiprocessors_(multiprocessors),
      can_reduce_(kernels.status()) {
  if (kernels.is_ok()) kernels_ = std::move(kernels).value();
}

Result<DeviceKernels::Functions> DeviceKernels::load(const Context& context,
                                                     std::span<const std::byte> kernels) {
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
  PC_ASSIGN_OR_RETURN(functions[kCopyKernel], loaded.find(kCopyKernel));
  return functions;
}

Status DeviceKernels::reduce(const DeviceReduction& reduction, CUstream stream) {
  PC_TRY(can_reduce_);
  PC_ASSIGN_OR_RETURN(const device::ReduceArguments arguments, reduce_arguments(reduction));
  const std::string name = reduce_kernel(reduction.dtype, reduction.how.op).value_or("");
  const auto kernel = kernels_.find(name);
  if (kernel == kernels_.end()) return Status(Code::kInternal, "no kernel was loaded of the name " + name);
  const pc::LaunchShape shape = launch_shape(reduction.count * size_of(reduction.dtype), multiprocessors_);
  return launch(context_.driver(), kernel->second, {shape.blocks, shape.threads}, stream, arguments);
}

// Prefers a kernel to the driver's copies, because a kernel reads the source only once for any
// number of destinations, and starts a short copy sooner.
Status DeviceKernels::copy(std::span<void* const> to, const void* from, std::size_t nbytes, CUstream stream) {
  constexpr uint32_t kShortestUnit = 4;  // for smaller units a kernel is too slow
  if (const auto kernel = kernels_.find(kCopyKernel); kernel != kernels_.end()) {
    PC_ASSIGN_OR_RETURN(const device::CopyArguments arguments, copy_arguments(to, from, nbytes));
    const pc::LaunchShape shape = launch_shape(nbytes, multiprocessors_);
    if (arguments.unit >= kShortestUnit || nbytes <= shape.threads)
      return launch(context_.driver(), kernel->second, {shape.blocks, shape.threads}, stream, arguments);
  }
  for (void* const each : to) {
    PC_TRY(copy_on_device(context_.driver(), reinterpret_cast<CUdeviceptr>(each),
                          reinterpret_cast<CUdeviceptr>(from), nbytes, stream));
  }
  return Status::ok();
}

}  // namespace pc::cuda
