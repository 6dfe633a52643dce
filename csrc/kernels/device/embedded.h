// The kernels of reduce.cu in this build: a fat binary, which has code for several GPUs, for
// cuLibraryLoadData. A build without nvcc has none. See docs/gpu-build.md. Thread-safety: constant
// data.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace pc {

std::span<const std::byte> embedded_kernels();  // empty if none were built
// Returns the targets with native code, such as "sm_90", and the target with PTX, such as
// "compute_75", which a driver compiles for newer GPUs.
std::span<const std::string_view> embedded_targets();

}  // namespace pc
