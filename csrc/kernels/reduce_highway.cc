// The kernels in Google Highway. This file includes itself, so that it is compiled once per
// instruction set. Without Highway it is empty.
#ifdef PYCOLLECTIVE_HAVE_HIGHWAY
#include <bit>
#include <cstring>
#include <type_traits>

#include "kernels/combine.h"
#include "kernels/kernel_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/reduce_highway.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"

// Everything after foreach_target.h is read once per instruction set, including this file.
#include "kernels/reduce_steps-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pc {
namespace HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

const KernelTable* target_kernels() { return nullptr; }  // the portable loops are used instead
#else
template <class Step>
HWY_INLINE void for_each(const Operands& operands, std::size_t element_bytes, const Step& step) {
  const typename Step::D d;
  uint8_t* const out = reinterpret_cast<uint8_t*>(operands.out);
  uint8_t* const also = reinterpret_cast<uint8_t*>(operands.also);
  const uint8_t* const a = reinterpret_cast<const uint8_t*>(operands.a);
  const uint8_t* const b = reinterpret_cast<const uint8_t*>(operands.b);
  const std::size_t nbytes = operands.count * element_bytes, piece = Step::nbytes();
  std::size_t i = 0;
  if (also == nullptr) {
    for (; nbytes - i >= piece; i += piece) store_to(d, step(a + i, b + i), out + i);
  } else {
    for (; nbytes - i >= piece; i += piece) {
      const auto result = step(a + i, b + i);
      store_to(d, result, out + i);
      store_to(d, result, also + i);
    }
  }
  if (i == nbytes) return;
  HWY_ALIGN uint8_t rest[3][HWY_MAX_BYTES] = {};  // the remainder, padded to a whole piece
  std::memcpy(rest[0], a + i, nbytes - i);
  std::memcpy(rest[1], b + i, nbytes - i);
  store_to(d, step(rest[0], rest[1]), rest[2]);
  std::memcpy(out + i, rest[2], nbytes - i);
  if (also != nullptr) std::memcpy(also + i, rest[2], nbytes - i);
}

template <template <class> class Step, ReduceOp op>
HWY_INLINE void for_each_short(const Operands& operands, std::size_t element_bytes) {
  if constexpr (op != ReduceOp::kAvg && op != ReduceOp::kScaledSum) {
    for_each(operands, element_bytes, Step<PlainLanes<op>>{});
  } else {
    const MeanFactors factors = mean_or_scale_factors<op>(operands);
    if (factors.divisor == 1.0f) return for_each(operands, element_bytes, Step<MeanLanes<false>>{{factors}});
    for_each(operands, element_bytes, Step<MeanLanes<true>>{{factors}});
  }
}

template <class T>
HWY_INLINE void mean(const Operands& operands) {
  if (!completes(operands.weights)) {
    for_each(operands, sizeof(T), WholeStep<T, ReduceOp::kSum>{});
  } else if (const T total = static_cast<T>(operands.weights.total);
             std::has_single_bit(operands.weights.total)) {
    for_each(operands, sizeof(T), CompletingStep<T, false>{total});
  } else {
    for_each(operands, sizeof(T), CompletingStep<T, true>{total});
  }
}

constexpr bool is_logical(ReduceOp op) {
  return op == ReduceOp::kLAnd || op == ReduceOp::kLOr || op == ReduceOp::kLXor;
}
template <class Element, ReduceOp op>
constexpr bool kTellsTruth = std::is_same_v<Element, Bool> || is_logical(op);
template <class Element, ReduceOp op>
constexpr bool kVectorised = std::is_arithmetic_v<Element> && !is_logical(op) && !takes_pairs(op);
// 16-bit pairs use the portable loops, because arrays with so few possible locations are rare.
template <class Element, ReduceOp op>
constexpr bool kLocates = takes_pairs(op) && sizeof(Element) >= 4;

constexpr Truth truth_of(ReduceOp op) {
  using enum ReduceOp;
  if (op == kLXor || op == kBXor) return Truth::kXor;
  return op == kLAnd || op == kBAnd || op == kProd || op == kMin ? Truth::kAnd : Truth::kOr;
}
template <std::size_t nbytes>
using Unsigned = std::conditional_t<
    nbytes == 1, uint8_t,
    std::conditional_t<nbytes == 2, uint16_t, std::conditional_t<nbytes == 4, uint32_t, uint64_t>>>;

// For all other cases the portable loops are used: compilers vectorise them well enough for types
// that are rarely reduced.
template <class Element, ReduceOp op>
struct Loop {
  static constexpr Kernel kKernel = nullptr;
};
template <class Element, ReduceOp op>
requires kVectorised<Element, op>
struct Loop<Element, op> {
  static void run(const Operands& operands) {
    if constexpr (op == ReduceOp::kAvg) {
      mean<Element>(operands);
    } else if constexpr (op == ReduceOp::kScaledSum) {
      for_each(operands, sizeof(Element), ScalingStep<Element>{scale_factors<Element>(operands)});
    } else {
      for_each(operands, sizeof(Element), WholeStep<Element, op>{});
    }
  }
  static constexpr Kernel kKernel = &run;
};
template <class Element, ReduceOp op>
requires kTellsTruth<Element, op>
struct Loop<Element, op> {
  static void run(const Operands& operands) {
    using T = Unsigned<sizeof(Element)>;
    constexpr bool kFloat = std::is_floating_point_v<Element> || kShortFloat<Element>;
    constexpr T kOne = std::bit_cast<T>(encode<Element>(decltype(decode(Element{})){1}));
    for_each(operands, sizeof(T), TruthStep<T, truth_of(op), kFloat>{kOne});
  }
  static constexpr Kernel kKernel = &run;
};
template <class Element, ReduceOp op>
requires kLocates<Element, op>
struct Loop<Element, op> {
  static void run(const Operands& operands) { for_each(operands, sizeof(Element), PlaceStep<Element, op>{}); }
  static constexpr Kernel kKernel = &run;
};
template <class T, ReduceOp op>
requires(op != ReduceOp::kProd) struct Loop<Complex<T>, op> {
  static void run(const Operands& operands) {
    Operands parts = operands;
    parts.count *= 2;
    Loop<T, op>::run(parts);
  }
  static constexpr Kernel kKernel = &run;
};
template <class T>
struct Loop<Complex<T>, ReduceOp::kProd> {
  static void run(const Operands& operands) {
    for_each(operands, sizeof(Complex<T>), ComplexProductStep<T>{});
  }
  static constexpr Kernel kKernel = &run;
};
template <ReduceOp op>
requires(!is_logical(op)) struct Loop<E4M3FN, op> {
  static void run(const Operands& operands) { for_each_short<E4M3FNStep, op>(operands, 1); }
  static constexpr Kernel kKernel = &run;
};
template <ReduceOp op>
requires(!is_logical(op)) struct Loop<E5M2, op> {
  static void run(const Operands& operands) { for_each_short<E5M2Step, op>(operands, 1); }
  static constexpr Kernel kKernel = &run;
};
template <ReduceOp op>
requires(!is_logical(op)) struct Loop<BF16, op> {
  static void run(const Operands& operands) { for_each_short<BF16Step, op>(operands, 2); }
  static constexpr Kernel kKernel = &run;
};
#if PC_CONVERTS_F16
template <ReduceOp op>
requires(!is_logical(op)) struct Loop<F16, op> {
  static void run(const Operands& operands) { for_each_short<F16Step, op>(operands, 2); }
  static constexpr Kernel kKernel = &run;
};
#endif
#undef PC_CONVERTS_F16

constexpr KernelTable kKernels = make_kernel_table<Loop>();
const KernelTable* target_kernels() { return &kKernels; }

#endif  // a target with vectors
}  // namespace HWY_NAMESPACE
}  // namespace pc
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pc {

HWY_EXPORT(target_kernels);

std::vector<KernelTarget> highway_targets() {
  std::vector<KernelTarget> found;
  const std::vector<int64_t> best_first = hwy::SupportedAndGeneratedTargets();
  for (std::size_t i = best_first.size(); i-- > 0;) {
    // a separate instance, so that looking up the entry of one target does not change the library's
    // global
    hwy::ChosenTarget chosen;
    chosen.Update(best_first[i]);
    constexpr bool kOnlyOne = (HWY_TARGETS & (HWY_TARGETS - 1)) == 0;
    const KernelTable* const kernels = HWY_DISPATCH_TABLE(target_kernels)[kOnlyOne ? 0 : chosen.GetIndex()]();
    if (kernels != nullptr) found.push_back({hwy::TargetName(best_first[i]), kernels});
  }
  return found;
}

}  // namespace pc
#endif  // HWY_ONCE
#endif  // PYCOLLECTIVE_HAVE_HIGHWAY
