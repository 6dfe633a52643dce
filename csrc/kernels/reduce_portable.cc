// Plain loops: the reference for every other implementation, and the kernels of machines without
// vector instructions.
#include <algorithm>
#include <cstring>

#include "kernels/combine.h"
#include "kernels/kernel_table.h"

namespace pc {
namespace {

// Works on copies in small local arrays, which are aligned and do not overlap, so that compilers
// vectorise the loop.
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
    if (operands.also != nullptr) std::memcpy(operands.also + done * sizeof(Element), a, n * sizeof(Element));
  }
}

Operands with_count(Operands operands, std::size_t count) {
  operands.count = count;
  return operands;
}

template <class Element>
void scaled_sum(const Operands& operands) {
  const ScaleFactors<Element> f = scale_factors<Element>(operands);
  for_each<Element>(operands, [f](Element a, Element b) { return a * f.a + b * f.b; });
}

template <class Element>
void mean(const Operands& operands) {
  if (!completes(operands.weights)) {
    return for_each<Element>(operands, [](Element a, Element b) { return a + b; });
  }
  const Element total = static_cast<Element>(operands.weights.total);
  for_each<Element>(operands, [total](Element a, Element b) { return (a + b) / total; });
}

template <class Element, ReduceOp op>
struct Loop {
  static void run(const Operands& operands) {
    using Value = decltype(decode(Element{}));
    if constexpr (takes_pairs(op)) {
      using Pair = Located<Element>;
      for_each<Pair>(with_count(operands, operands.count / 2),
                     [](Pair a, Pair b) { return combine<op>(a, b); });
    } else if constexpr (op != ReduceOp::kAvg && op != ReduceOp::kScaledSum) {
      for_each<Element>(operands, [](Value a, Value b) { return combine<op>(a, b); });
    } else if constexpr (kShortFloat<Element>) {
      const MeanFactors f = mean_or_scale_factors<op>(operands);
      for_each<Element>(operands, [f](float a, float b) { return (a * f.a + b * f.b) / f.divisor; });
    } else if constexpr (op == ReduceOp::kAvg) {
      mean<Element>(operands);
    } else {
      scaled_sum<Element>(operands);
    }
  }
  static constexpr Kernel kKernel = &run;
};
// Factors and divisors are real, so the operation applies to each part.
template <class T, ReduceOp op>
requires(op != ReduceOp::kProd) struct Loop<Complex<T>, op> {
  static void run(const Operands& operands) { Loop<T, op>::run(with_count(operands, 2 * operands.count)); }
  static constexpr Kernel kKernel = &run;
};

constexpr KernelTable kKernels = make_kernel_table<Loop>();

}  // namespace

const KernelTable& portable_kernels() { return kKernels; }

}  // namespace pc
