// What one device does with arrays that it reaches, its own or those of peers: reduces them by the built-in kernels, and copies.
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
  // `kernels`: embedded_kernels(). Without any, or on a driver that does not take them, it copies only. All of them go to the device now:
  // later that would wait for whatever runs there, and that may wait for this rank.
  static Result<DeviceKernels> create(const Context& context, std::span<const std::byte> kernels);

  const Status& can_reduce() const { return can_reduce_; }  // kUnsupported, and why not
  // Queued on `stream`, whose context must be current.
  Status reduce(const DeviceReduction& reduction, CUstream stream);
  Status copy(std::span<void* const> to, const void* from, std::size_t nbytes, CUstream stream);

 private:
  using Functions = std::map<std::string, CUfunction>;
  DeviceKernels(Context context, uint32_t multiprocessors, Result<Functions> kernels);
  static Result<Functions> load(const Context& context, std::span<const std::byte> kernels);

  Context context_;
  uint32_t multiprocessors_;
  Status can_reduce_;
  Functions kernels_;  // by name; all there are, where can_reduce_
};

}  // namespace pc::cuda
