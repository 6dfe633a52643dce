// The kernels of reduce.cu in this build: one block of code for several GPUs, a fat binary, for
// cuLibraryLoadData. A build without nvcc has none. See docs/gpu-build.md. Constant data: safe from
// every thread.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace pc {

std::span<const std::byte> embedded_kernels();  // empty if none were built
// The targets with native code, "sm_90", and the one with text that a driver compiles for newer
// GPUs, "compute_75".
std::span<const std::string_view> embedded_targets();

}  // namespace pc
