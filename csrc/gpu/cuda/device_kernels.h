// Reductions (by the built-in kernels) and copies of one device, on its own arrays and on arrays of
// peers that it can access.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>

#include "gpu/cuda/context.h"
#include "gpu/cuda/kernels.h"
#include "kernels/device/kernel_choice.h"

namespace pc::cuda {

// Thread-safety: one thread at a time.
class DeviceKernels {
 public:
  // `kernels` is embedded_kernels(). If it is empty, or the driver does not accept it, only copies
  // are available. All kernels are loaded onto the device here. Loading a kernel later would wait
  // for the device's work, and that work may wait for this rank.
  static Result<DeviceKernels> create(const Context& context, std::span<const std::byte> kernels);

  const Status& can_reduce() const { return can_reduce_; }  // OK, or kUnsupported with the reason
  // reduce() and copy() are queued on `stream`. The stream's context must be current. copy() writes
  // to every array of `to`.
  Status reduce(const DeviceReduction& reduction, CUstream stream);
  Status copy(std::span<void* const> to, const void* from, std::size_t nbytes, CUstream stream);

 private:
  using Functions = std::map<std::string, CUfunction>;
  DeviceKernels(Context context, uint32_t multiprocessors, Result<Functions> kernels);
  static Result<Functions> load(const Context& context, std::span<const std::byte> kernels);

  Context context_;
  uint32_t multiprocessors_;
  Status can_reduce_;
  Functions kernels_;  // by name; complete if can_reduce_ is OK
};

}  // namespace pc::cuda
