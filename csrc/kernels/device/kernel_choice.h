// Selects the kernel of a reduction and its arguments, on the host. The kernels run on a GPU and
// are launched by name. Every (dtype, op) that the CPU can reduce has a kernel, which gives the
// same bits, except for NaN payloads. Thread-safety: no state.
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

// Returns the name of a kernel, such as "pc_sum_f32". It is a symbol of embedded_kernels() with one
// parameter, device::ReduceArguments. Returns nullopt if no kernel can reduce `dtype` by `op`.
std::optional<std::string> reduce_kernel(DType dtype, ReduceOp op);
// The kernel that copies to several destinations at once. Its parameter is device::CopyArguments.
inline constexpr const char* kCopyKernel = "pc_copy";

// to[j] = from[0] (op) from[1] (op) ..., in this order. At most 8 sources and 8 outputs are
// allowed. More sources need further launches, each with the output of the previous launch as its
// first source; the result has the same bits. An output may be a source if both have the same
// address. All addresses are device addresses. A pair of minloc is two elements of `count`, as in
// kernels/reduce.h.
struct DeviceReduction {
  std::span<const void* const> from;
  std::span<void* const> to;
  std::size_t count = 0;
  DType dtype = DType::kU8;
  Reduction how = {};
  // contributions[k] is the number of ranks that have contributed to source k (empty: one each).
  // `total` is the number of ranks in the sources of all launches (0: this is the only launch).
  // Averages and scaled sums need both.
  std::span<const uint32_t> contributions = {};
  uint32_t total = 0;
};

// Returns an error if no kernel can make this reduction, if there are no sources or no outputs, if
// there are too many of either, or if any is misaligned.
Result<device::ReduceArguments> reduce_arguments(const DeviceReduction& reduction);
Result<device::CopyArguments> copy_arguments(std::span<void* const> to, const void* from, std::size_t nbytes);

// One thread for each vector of 16 bytes. If the multiprocessors cannot hold so many threads, as
// many as they can hold, but at least one for each four vectors: in large arrays short-lived
// threads keep the memory busier than long-lived ones.
struct LaunchShape {
  uint32_t blocks, threads;
};
LaunchShape launch_shape(std::size_t nbytes, uint32_t multiprocessors);

}  // namespace pc
