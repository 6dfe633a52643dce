// Defines the result of each operation on two values, in plain C++. Every implementation must give
// the same result.
#pragma once

#include <bit>
#include <cmath>
#include <type_traits>

#include "kernels/float8.h"
#include "kernels/kernel_table.h"

namespace pc {

// decode() returns the value in which an element is computed; encode() converts a result back.
template <class Element>
constexpr auto decode(Element element) {
  if constexpr (kShortFloat<Element>) {
    return to_float(element);
  } else if constexpr (std::is_same_v<Element, Bool>) {
    return static_cast<uint8_t>(element) != 0;
  } else {
    return element;
  }
}
template <class Element, class Value>
constexpr Element encode(Value value) {
  if constexpr (std::is_same_v<Element, F16>) {
    return to_f16(value);
  } else if constexpr (std::is_same_v<Element, BF16>) {
    return to_bf16(value);
  } else if constexpr (std::is_same_v<Element, E4M3FN>) {
    return to_e4m3fn(value);
  } else if constexpr (std::is_same_v<Element, E5M2>) {
    return to_e5m2(value);
  } else {
    return static_cast<Element>(value);
  }
}

// The smaller (or larger) of two values: NaN if either is NaN, and -0 below +0.
template <ReduceOp op, class T>
T extreme(T a, T b) {
  constexpr bool kMinimum = op == ReduceOp::kMin;
  const T smaller_or_b = (kMinimum ? a < b : b < a) ? a : b;
  if constexpr (std::is_floating_point_v<T>) {
    using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
    const Bits x = std::bit_cast<Bits>(a), y = std::bit_cast<Bits>(b);
    // equal values differ in their bits only if they are zeros
    const T of_equals = std::bit_cast<T>(kMinimum ? x | y : x & y);
    return a != a ? a : a == b ? of_equals : smaller_or_b;
  } else {
    return smaller_or_b;
  }
}

// Returns true if extreme() strictly prefers a to b.
template <ReduceOp op, class T>
bool is_more_extreme(T a, T b) {
  constexpr bool kMinimum = op == ReduceOp::kMin;
  const bool beyond = kMinimum ? a < b : b < a;
  if constexpr (std::is_floating_point_v<T>) {
    const bool zero = a == b && std::signbit(a) != std::signbit(b) && std::signbit(a) == kMinimum;
    return beyond || zero || (a != a && b == b);
  } else {
    return beyond;
  }
}

template <class T>
struct Located {
  T value, location;
};
template <ReduceOp op, class T>
Located<T> combine(Located<T> a, Located<T> b) {
  constexpr ReduceOp kOrder = op == ReduceOp::kMinLoc ? ReduceOp::kMin : ReduceOp::kMax;
  if (is_more_extreme<kOrder>(a.value, b.value)) return a;
  if (is_more_extreme<kOrder>(b.value, a.value)) return b;
  return {a.value, extreme<ReduceOp::kMin>(a.location, b.location)};
}

template <ReduceOp op, class T>
Complex<T> combine(Complex<T> a, Complex<T> b) {
  if constexpr (op == ReduceOp::kSum) return {a.re + b.re, a.im + b.im};
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

template <ReduceOp op>
bool combine_truth(bool a, bool b) {
  using enum ReduceOp;
  if constexpr (op == kBXor || op == kLXor) return a != b;
  if constexpr (op == kProd || op == kMin || op == kBAnd || op == kLAnd) return a & b;
  return a | b;
}

template <ReduceOp op, class T>
T combine_bits(T a, T b) {
  if constexpr (op == ReduceOp::kBAnd) return static_cast<T>(a & b);
  if constexpr (op == ReduceOp::kBOr) return static_cast<T>(a | b);
  return static_cast<T>(a ^ b);
}

template <ReduceOp op, class T>
T combine(T a, T b) {
  using enum ReduceOp;
  if constexpr (std::is_same_v<T, bool>) {
    return combine_truth<op>(a, b);
  } else if constexpr (op == kLAnd || op == kLOr || op == kLXor) {
    return static_cast<T>(combine_truth<op>(a != T{0}, b != T{0}));
  } else if constexpr (op == kBAnd || op == kBOr || op == kBXor) {
    return combine_bits<op>(a, b);
  } else if constexpr (op == kMin || op == kMax) {
    return extreme<op>(a, b);
  } else if constexpr (std::is_floating_point_v<T>) {
    return op == kProd ? a * b : a + b;
  } else {
    // Unsigned, so that integers wrap, and of at least 32 bits, because 16-bit products would
    // overflow an int.
    using Wide = std::common_type_t<std::make_unsigned_t<T>, unsigned>;
    const Wide x = static_cast<Wide>(a), y = static_cast<Wide>(b);
    return static_cast<T>(op == kProd ? x * y : x + y);
  }
}

}  // namespace pc
