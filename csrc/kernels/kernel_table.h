// What the implementations of kernels/reduce.h share: the shape of a kernel, THE table of dtype x op from which each of
// them is built, and the arithmetic of avg. Private to csrc/kernels.
//
// csrc/kernels is compiled with -ffp-contract=off: a compiler that fuses a multiplication and an addition on the
// instruction sets that can would give other bits there than elsewhere.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "kernels/reduce.h"

namespace pc {

struct Operands {
  std::byte* out;
  const std::byte* a;
  const std::byte* b;
  std::size_t count;
  Weights weights;
};
using Kernel = void (*)(const Operands&);
using KernelTable = std::array<std::array<Kernel, kReduceOpCount>, kDTypeCount>;  // nullptr: not offered

// Elements that C++20 has no type for, by their bits.
enum class F16 : uint16_t {};
enum class BF16 : uint16_t {};

// Loop<Element, op>::run is the kernel of one cell. A new dtype or op is one line here, and a Loop in each implementation.
template <template <class, ReduceOp> class Loop>
constexpr KernelTable make_kernel_table() {
  KernelTable table = {};
  const auto offer = [&table]<class Element, ReduceOp... ops>(DType dtype) {
    ((table[static_cast<std::size_t>(dtype)][static_cast<std::size_t>(ops)] = &Loop<Element, ops>::run), ...);
  };
  using enum ReduceOp;
  offer.template operator()<float, kSum, kProd, kMin, kMax, kAvg>(DType::kF32);
  offer.template operator()<double, kSum, kProd, kMin, kMax, kAvg>(DType::kF64);
  offer.template operator()<F16, kSum, kProd, kMin, kMax, kAvg>(DType::kF16);
  offer.template operator()<BF16, kSum, kProd, kMin, kMax, kAvg>(DType::kBF16);
  offer.template operator()<int32_t, kSum, kProd, kMin, kMax>(DType::kI32);
  offer.template operator()<int64_t, kSum, kProd, kMin, kMax>(DType::kI64);
  offer.template operator()<uint8_t, kSum, kProd, kMin, kMax>(DType::kU8);
  return table;
}

// avg of the 16-bit types: (a * weight_a + b * weight_b) / (weight_a + weight_b), all three scaled by one power of two, so
// that no intermediate result is larger than the larger operand: it cannot overflow. The scaling is exact, and `divisor`
// is 1 if the sum of the weights is a power of two.
struct MeanFactors {
  float a, b, divisor;
};
inline MeanFactors mean_factors(const Weights& weights) {
  const uint64_t sum = uint64_t{weights.a} + weights.b;
  const float scale = 1.0f / static_cast<float>(std::bit_ceil(sum));
  return {static_cast<float>(weights.a) * scale, static_cast<float>(weights.b) * scale,
          static_cast<float>(sum) * scale};
}
// avg of float32 and float64 is a sum, divided when it is complete.
inline bool completes(const Weights& weights) { return uint64_t{weights.a} + weights.b == weights.total; }

struct KernelTarget {
  std::string_view name;
  const KernelTable* kernels;
};
const KernelTable& portable_kernels();        // has every kernel that there is
std::vector<KernelTarget> highway_targets();  // those that this machine can run, best last

}  // namespace pc
