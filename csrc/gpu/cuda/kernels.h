// The kernels that are built into this library, as one block of data that the driver loads, and launching them.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "gpu/cuda/context.h"
#include "gpu/cuda/driver.h"

namespace pc::cuda {

struct LaunchShape {
  unsigned blocks = 1;
  unsigned threads = 1;        // of each block
  unsigned shared_nbytes = 0;  // of each block, beyond what the kernel has anyway
};

// Code on every device: loaded once, whatever contexts there are. Never unloaded, since kernels may be running and graphs may
// hold some.
// Thread-safety: immutable.
class Kernels {
 public:
  // `image`: of nvcc -fatbin; must stay. kUnsupported: empty (this build has no kernels), or the driver is too old for them.
  static Result<Kernels> load(std::shared_ptr<const Driver> driver, std::span<const std::byte> image);
  // The kernel of this name for the current context, with its code on the device, so that no launch of it loads anything: that
  // would stop the device, and end a capture. kUnsupported: as load(). kInternal: there is none of this name.
  Result<CUfunction> find(const std::string& name) const;

 private:
  Kernels(std::shared_ptr<const Driver> driver, CUlibrary library)
      : driver_(std::move(driver)),
        library_(library) {}
  std::shared_ptr<const Driver> driver_;
  CUlibrary library_;
};

// Queues one kernel. `arguments`: the address of each, read before this returns. The stream's context must be current.
Status launch(const Driver& driver, CUfunction kernel, const LaunchShape& shape, CUstream stream,
              std::span<void*> arguments);
// launch(driver, kernel, {blocks, threads}, stream, to, from, count): the types must be the kernel's own.
template <class... Argument>
Status launch(const Driver& driver, CUfunction kernel, const LaunchShape& shape, CUstream stream,
              Argument... arguments) {
  std::array<void*, sizeof...(Argument)> addresses{static_cast<void*>(&arguments)...};
  return launch(driver, kernel, shape, stream, std::span<void*>(addresses));
}

}  // namespace pc::cuda
