// The built-in kernels on a FAKE driver: their own loops, compiled for the CPU.
#pragma once

#include <cstddef>
#include <span>

#include "fakes/cuda/fake_cuda.h"

namespace pc::testing {

// Returns what a build with nvcc would have embedded.
std::span<const std::byte> fake_kernels(const FakeCuda& fake);

}  // namespace pc::testing
