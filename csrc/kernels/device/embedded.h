// The kernels of reduce.cu as this build has them: one block of code for several GPUs, a fat binary, for cuLibraryLoadData.
// A build without nvcc has none. docs/gpu-build.md. Constant data: safe from every thread.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace pc {

std::span<const std::byte> embedded_kernels();  // empty: none were built
// What it has code for, "sm_90", and text that a driver compiles for what is newer, "compute_75".
std::span<const std::string_view> embedded_targets();

}  // namespace pc
