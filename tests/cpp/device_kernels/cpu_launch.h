// The GPU's kernels on the CPU: the same loops, steps and arithmetic, compiled by the C++ compiler
// and run thread by thread. Only the work of a GPU instruction (float16's conversions) is
// implemented differently.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/device/arguments.h"

namespace pc {

std::vector<std::string_view> reduce_kernels();  // returns the names of all kernels
// Returns false if no kernel has this name.
bool launch_on_cpu(std::string_view name, const device::ReduceArguments& arguments, uint64_t threads);
void launch_copy_on_cpu(const device::CopyArguments& arguments, uint64_t threads);

}  // namespace pc
