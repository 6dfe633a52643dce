// Shared by the implementations of kernels/reduce.h: the signature of a kernel, the table of dtype
// x op from which each implementation is built, and the arithmetic of avg and of a scaled sum.
// Private to csrc/kernels.
//
// csrc/kernels is compiled with -ffp-contract=off. Otherwise a compiler would fuse multiplications
// and additions on some instruction sets, and the bits would differ between instruction sets.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/types.h"
#include "kernels/weights.h"

namespace pc {

struct Operands {
  std::byte* out;
  const std::byte* a;
  const std::byte* b;
  std::size_t count;
  Weights weights;
  double factor;
  std::byte* also = nullptr;  // gets the same bytes as out; may be null
};
using Kernel = void (*)(const Operands&);
using KernelTable = std::array<std::array<Kernel, kReduceOpCount>, kDTypeCount>;  // nullptr: not supported

// Element types that C++20 lacks, as their bits.
enum class Bool : uint8_t {};
enum class F16 : uint16_t {};
enum class BF16 : uint16_t {};
enum class E4M3FN : uint8_t {};
enum class E5M2 : uint8_t {};
template <class T>
struct Complex {
  T re, im;
};
// Types that are computed in float32.
template <class T>
constexpr bool kShortFloat =
    std::is_same_v<T, F16> || std::is_same_v<T, BF16> || std::is_same_v<T, E4M3FN> || std::is_same_v<T, E5M2>;

template <ReduceOp...>
struct Ops {};

template <template <class, ReduceOp> class Loop>
struct KernelTableBuilder {
  KernelTable table = {};
  template <class Element, class... Groups>
  constexpr void offer(DType dtype, Groups... groups) {
    (put<Element>(table[static_cast<std::size_t>(dtype)], groups), ...);
  }

 private:
  template <class Element, ReduceOp... ops>
  constexpr void put(std::array<Kernel, kReduceOpCount>& row, Ops<ops...>) {
    ((row[static_cast<std::size_t>(ops)] = Loop<Element, ops>::kKernel), ...);
  }
};

// Loop<Element, op>::kKernel is the kernel of one cell, or nullptr if the portable kernel is as
// good. A new dtype is one line here, a new op one word; then each implementation needs its Loop.
template <template <class, ReduceOp> class Loop>
constexpr KernelTable make_kernel_table() {
  using enum ReduceOp;
  constexpr Ops<kSum, kProd> kSums;
  constexpr Ops<kMin, kMax> kOrder;
  constexpr Ops<kAvg, kScaledSum> kFractions;
  constexpr Ops<kBAnd, kBOr, kBXor> kBits;
  constexpr Ops<kLAnd, kLOr, kLXor> kTruth;
  constexpr Ops<kMinLoc, kMaxLoc> kPlaces;
  KernelTableBuilder<Loop> table;
  table.template offer<Bool>(DType::kBool, kSums, kOrder, kBits, kTruth);
  table.template offer<uint8_t>(DType::kU8, kSums, kOrder, kBits, kTruth);
  table.template offer<int8_t>(DType::kI8, kSums, kOrder, kBits, kTruth);
  table.template offer<uint16_t>(DType::kU16, kSums, kOrder, kBits, kTruth, kPlaces);
  table.template offer<int16_t>(DType::kI16, kSums, kOrder, kBits, kTruth, kPlaces);
  table.template offer<uint32_t>(DType::kU32, kSums, kOrder, kBits, kTruth, kPlaces);
  table.template offer<int32_t>(DType::kI32, kSums, kOrder, kBits, kTruth, kPlaces);
  table.template offer<uint64_t>(DType::kU64, kSums, kOrder, kBits, kTruth, kPlaces);
  table.template offer<int64_t>(DType::kI64, kSums, kOrder, kBits, kTruth, kPlaces);
  table.template offer<F16>(DType::kF16, kSums, kOrder, kFractions, kTruth);
  table.template offer<BF16>(DType::kBF16, kSums, kOrder, kFractions, kTruth);
  table.template offer<float>(DType::kF32, kSums, kOrder, kFractions, kTruth, kPlaces);
  table.template offer<double>(DType::kF64, kSums, kOrder, kFractions, kTruth, kPlaces);
  table.template offer<Complex<float>>(DType::kC64, kSums, kFractions);
  table.template offer<Complex<double>>(DType::kC128, kSums, kFractions);
  table.template offer<E4M3FN>(DType::kF8E4M3FN, kSums, kOrder, kFractions, kTruth);
  table.template offer<E5M2>(DType::kF8E5M2, kSums, kOrder, kFractions, kTruth);
  return table.table;
}

// avg of the short floats: (a * weight_a + b * weight_b) / (weight_a + weight_b). All three factors
// are scaled by one power of two, so that no intermediate result is larger than the larger operand,
// and none overflows. The scaling is exact, and `divisor` is 1 if the sum of the weights is a power
// of two.
struct MeanFactors {
  float a, b, divisor;
};
inline MeanFactors mean_factors(const Weights& weights) {
  const uint64_t sum = uint64_t{weights.a} + weights.b;
  const float scale = 1.0f / static_cast<float>(std::bit_ceil(sum));
  return {static_cast<float>(weights.a) * scale, static_cast<float>(weights.b) * scale,
          static_cast<float>(sum) * scale};
}
// A scaled sum: a * factors.a + b * factors.b. The factor of an operand that is a partial result is
// 1, because that operand has been multiplied already.
template <class T>
struct ScaleFactors {
  T a, b;
};
template <class T>
ScaleFactors<T> scale_factors(const Operands& operands) {
  // A NaN's payload is dropped, because rounding in software would carry the payload into the
  // exponent.
  constexpr T kNan = std::numeric_limits<T>::quiet_NaN();
  const T factor = operands.factor == operands.factor ? static_cast<T>(operands.factor) : kNan;
  return {operands.weights.a == 1 ? factor : T{1}, operands.weights.b == 1 ? factor : T{1}};
}
// The short floats use one loop for avg and scaled sum.
template <ReduceOp op>
MeanFactors mean_or_scale_factors(const Operands& operands) {
  if constexpr (op == ReduceOp::kAvg) return mean_factors(operands.weights);
  const ScaleFactors<float> factors = scale_factors<float>(operands);
  return {factors.a, factors.b, 1.0f};
}
// avg of the wider floats and of complex numbers is a sum that is divided when it is complete.
inline bool completes(const Weights& weights) { return uint64_t{weights.a} + weights.b == weights.total; }

struct KernelTarget {
  std::string_view name;
  const KernelTable* kernels;
};
const KernelTable& portable_kernels();  // has every supported kernel
// Returns the targets that this machine can run, best last. A null kernel stands for the portable
// one.
std::vector<KernelTarget> highway_targets();

// The kernels that this machine runs; every supported kernel is set.
const KernelTable& best_kernels();
const KernelTable* kernels_on(std::string_view target);  // nullptr if the target is not available
inline Kernel kernel_of(const KernelTable& table, DType dtype, ReduceOp op) {
  return table[static_cast<std::size_t>(dtype)][static_cast<std::size_t>(op)];
}

}  // namespace pc
