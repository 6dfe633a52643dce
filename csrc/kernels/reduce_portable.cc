// Plain loops: the reference for every other implementation, and what machines without vector instructions run.
#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "kernels/float16.h"
#include "kernels/kernel_table.h"

namespace pc {
namespace {

// What an element is computed in. Signed integers are added and multiplied as unsigned ones: they wrap.
template <class Element>
auto decode(Element element) {
  if constexpr (std::is_same_v<Element, F16> || std::is_same_v<Element, BF16>) {
    return to_float(element);
  } else {
    return element;
  }
}
template <class Element, class Value>
Element encode(Value value) {
  if constexpr (std::is_same_v<Element, F16>) {
    return to_f16(value);
  } else if constexpr (std::is_same_v<Element, BF16>) {
    return to_bf16(value);
  } else {
    return static_cast<Element>(value);
  }
}

// The smaller (or larger) of two, NaN if one is, -0 below +0.
template <ReduceOp op, class T>
T extreme(T a, T b) {
  constexpr bool kMinimum = op == ReduceOp::kMin;
  const T smaller_or_b = (kMinimum ? a < b : b < a) ? a : b;
  if constexpr (std::is_floating_point_v<T>) {
    using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
    const Bits x = std::bit_cast<Bits>(a), y = std::bit_cast<Bits>(b);
    const T of_equals =
        std::bit_cast<T>(kMinimum ? x | y : x & y);  // their bits differ only if they are zeros
    return a != a ? a : a == b ? of_equals : smaller_or_b;
  } else {
    return smaller_or_b;
  }
}

template <ReduceOp op, class T>
T combine(T a, T b) {
  if constexpr (op == ReduceOp::kMin || op == ReduceOp::kMax) {
    return extreme<op>(a, b);
  } else if constexpr (std::is_floating_point_v<T>) {
    return op == ReduceOp::kProd ? a * b : a + b;
  } else {
    using Wide =
        std::common_type_t<std::make_unsigned_t<T>, unsigned>;  // 16-bit products would overflow an int
    const Wide x = static_cast<Wide>(a), y = static_cast<Wide>(b);
    return static_cast<T>(op == ReduceOp::kProd ? x * y : x + y);
  }
}

// Works on copies in small arrays of its own: they are aligned and overlap nothing, so compilers vectorise the loop.
template <class Element, class Combine>
void for_each(const Operands& operands, Combine combine_two) {
  constexpr std::size_t kBlock = 256;
  Element a[kBlock], b[kBlock];
  for (std::size_t done = 0; done < operands.count; done += kBlock) {
    const std::size_t n = std::min(kBlock, operands.count - done);
    std::memcpy(a, operands.a + done * sizeof(Element), n * sizeof(Element));
    std::memcpy(b, operands.b + done * sizeof(Element), n * sizeof(Element));
    for (std::size_t i = 0; i < n; ++i) a[i] = encode<Element>(combine_two(decode(a[i]), decode(b[i])));
    std::memcpy(operands.out + done * sizeof(Element), a, n * sizeof(Element));
  }
}

template <class Element, ReduceOp op>
struct Loop {
  static void run(const Operands& operands) {
    using Value = decltype(decode(Element{}));
    if constexpr (op != ReduceOp::kAvg) {
      for_each<Element>(operands, [](Value a, Value b) { return combine<op>(a, b); });
    } else if constexpr (sizeof(Element) == 2) {
      const MeanFactors f = mean_factors(operands.weights);
      for_each<Element>(operands, [f](float a, float b) { return (a * f.a + b * f.b) / f.divisor; });
    } else if (completes(operands.weights)) {
      const Value total = static_cast<Value>(operands.weights.total);
      for_each<Element>(operands, [total](Value a, Value b) { return (a + b) / total; });
    } else {
      for_each<Element>(operands, [](Value a, Value b) { return a + b; });
    }
  }
};

constexpr KernelTable kKernels = make_kernel_table<Loop>();

}  // namespace

const KernelTable& portable_kernels() { return kKernels; }

}  // namespace pc
