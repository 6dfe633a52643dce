// Which kernel reduces what, and what it is told. On the host; the kernels run on a GPU, and whoever launches them does so by
// name. Every (dtype, op) that the CPU can reduce has a kernel, which gives the same bits, NaN payloads aside.
//
// No state: safe from every thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/status.h"
#include "base/types.h"
#include "kernels/device/arguments.h"

namespace pc {

// "pc_sum_f32", a symbol of embedded_kernels(), with one parameter: device::ReduceArguments. nullopt: nothing can reduce it.
std::optional<std::string> reduce_kernel(DType dtype, ReduceOp op);
// Copies, to several places at once; its parameter is device::CopyArguments.
inline constexpr const char* kCopyKernel = "pc_copy";

// to[j] = from[0] (op) from[1] (op) ..., in this order. At most 8 sources and 8 outputs; more sources are further launches
// that take the output of the one before as their first source, and give the same bits. An output may be a source, element for
// element. Addresses are the device's; a pair of minloc is two elements of `count`, as in kernels/reduce.h.
struct DeviceReduction {
  std::span<const void* const> from;
  std::span<void* const> to;
  std::size_t count = 0;
  DType dtype = DType::kU8;
  Reduction how = {};
  // How many ranks' contributions each source holds, and how many there are in all, in this launch and others: what the
  // averages and scaled sums need. Empty: one each. 0: what the sources hold.
  std::span<const uint32_t> contributions = {};
  uint32_t total = 0;
};

// Fails where nothing can reduce it, and where sources or outputs are none, too many or not aligned to their elements.
Result<device::ReduceArguments> reduce_arguments(const DeviceReduction& reduction);
Result<device::CopyArguments> copy_arguments(std::span<void* const> to, const void* from, std::size_t nbytes);

// One thread for each vector of 16 bytes, or what all multiprocessors can hold, or one for each four vectors, if that is more: in large
// arrays threads that come and go keep the memory busier than such that stay.
struct LaunchShape {
  uint32_t blocks, threads;
};
LaunchShape launch_shape(std::size_t nbytes, uint32_t multiprocessors);

}  // namespace pc
