// What one device does with arrays that it reaches, its own or those of peers: reduces them by the built-in kernels, and copies.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "cuda/context.h"
#include "cuda/kernels.h"
#include "kernels/device/kernel_choice.h"

namespace pc::cuda {

// Thread-safety: one thread at a time.
class Mover {
 public:
  // `kernels`: embedded_kernels(). Without any, or on a driver that does not take them, it copies only.
  static Result<Mover> create(const Context& context, std::span<const std::byte> kernels);

  const Status& can_reduce() const { return can_reduce_; }  // kUnsupported, and why not
  // Queued on `stream`, whose context must be current.
  Status reduce(const DeviceReduction& reduction, CUstream stream);
  Status copy(void* to, const void* from, std::size_t nbytes, CUstream stream);

 private:
  Mover(Context context, uint32_t multiprocessors, Result<Kernels> kernels);
  Result<CUfunction> find(const std::string& name);

  Context context_;
  uint32_t multiprocessors_;
  Status can_reduce_;
  std::optional<Kernels> kernels_;           // there where can_reduce_
  std::map<std::string, CUfunction> found_;  // finding one takes the driver a while
};

}  // namespace pc::cuda
