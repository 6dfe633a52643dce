// Loads and launches the kernels that are built into this library as one block of data for the
// driver.
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
  unsigned shared_nbytes = 0;  // of each block, in addition to the kernel's static shared memory
};

// Kernels for every device, loaded once for all contexts. They are never unloaded, since they may
// be running and graphs may refer to them. Thread-safety: immutable.
class Kernels {
 public:
  // `image` is the output of nvcc -fatbin and must stay valid. Returns kUnsupported if it is empty
  // (this build has no kernels) or the driver is too old for it.
  static Result<Kernels> load(std::shared_ptr<const Driver> driver, std::span<const std::byte> image);
  // Returns the kernel of this name for the current context. Loads its code onto the device now,
  // because loading it at the first launch would stop the device and end a capture. Returns
  // kUnsupported as load() does, and kInternal if there is no kernel of this name.
  Result<CUfunction> find(const std::string& name) const;

 private:
  Kernels(std::shared_ptr<const Driver> driver, CUlibrary library)
      : driver_(std::move(driver)),
        library_(library) {}
  std::shared_ptr<const Driver> driver_;
  CUlibrary library_;
};

// Queues one kernel. `arguments` holds the address of each argument; the arguments are read before
// this returns. The stream's context must be current.
Status launch(const Driver& driver, CUfunction kernel, const LaunchShape& shape, CUstream stream,
              std::span<void*> arguments);
// Example: launch(driver, kernel, {blocks, threads}, stream, to, from, count). The types must be
// those of the kernel's parameters.
template <class... Argument>
Status launch(const Driver& driver, CUfunction kernel, const LaunchShape& shape, CUstream stream,
              Argument... arguments) {
  std::array<void*, sizeof...(Argument)> addresses{static_cast<void*>(&arguments)...};
  return launch(driver, kernel, shape, stream, std::span<void*>(addresses));
}

}  // namespace pc::cuda
