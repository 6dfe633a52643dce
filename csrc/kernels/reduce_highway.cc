// The kernels in Google Highway: this file is compiled once per instruction set and includes itself for that.
// Without Highway it is empty.
#ifdef PYCOLLECTIVE_HAVE_HIGHWAY
#include <bit>
#include <cstring>
#include <type_traits>

#include "kernels/kernel_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/reduce_highway.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pc {
namespace HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

const KernelTable* target_kernels() { return nullptr; }  // the portable loops do that
#else
namespace hn = hwy::HWY_NAMESPACE;

// ---- arithmetic of one vector

template <ReduceOp op, class V>
HWY_INLINE V combine_floats(V a, V b) {
  if constexpr (op == ReduceOp::kSum) {
    return hn::Add(a, b);
  } else if constexpr (op == ReduceOp::kProd) {
    return hn::Mul(a, b);
  } else {  // by comparisons: hardware instructions disagree about NaN and -0
    const V nan_or = hn::IfThenElse(hn::IsNaN(a), a, b);  // if neither is smaller
    if constexpr (op == ReduceOp::kMin) {
      return hn::IfThenElse(hn::Lt(a, b), a, hn::IfThenElse(hn::Eq(a, b), hn::Or(a, b), nan_or));
    } else {
      return hn::IfThenElse(hn::Gt(a, b), a, hn::IfThenElse(hn::Eq(a, b), hn::And(a, b), nan_or));
    }
  }
}

// D: unsigned for sum and prod, which wrap; the element's own type for min and max.
template <ReduceOp op, class D, class V>
HWY_INLINE V combine_integers(D d, V a, V b) {
  if constexpr (op == ReduceOp::kSum) {
    return hn::Add(a, b);
  } else if constexpr (op == ReduceOp::kBAnd) {
    return hn::And(a, b);
  } else if constexpr (op == ReduceOp::kBOr) {
    return hn::Or(a, b);
  } else if constexpr (op == ReduceOp::kBXor) {
    return hn::Xor(a, b);
  } else if constexpr (op == ReduceOp::kMin) {
    return hn::Min(a, b);
  } else if constexpr (op == ReduceOp::kMax) {
    return hn::Max(a, b);
  } else if constexpr (sizeof(hn::TFromD<D>) > 1) {
    return hn::Mul(a, b);
  } else {  // bytes: the low byte of a 16-bit product needs only the low bytes of its factors
    const hn::Repartition<uint16_t, D> wide;
    const auto x = hn::BitCast(wide, a), y = hn::BitCast(wide, b);
    const auto even = hn::And(hn::Mul(x, y), hn::Set(wide, 0xff));
    const auto odd = hn::ShiftLeft<8>(hn::Mul(hn::ShiftRight<8>(x), hn::ShiftRight<8>(y)));
    return hn::BitCast(d, hn::Or(even, odd));
  }
}

// ---- steps: what is done to one piece of the operands

template <class D>
HWY_INLINE hn::VFromD<D> load_from(D d, const uint8_t* from) {
  return hn::BitCast(d, hn::LoadU(hn::Repartition<uint8_t, D>(), from));
}
template <class D>
HWY_INLINE void store_to(D, hn::VFromD<D> v, uint8_t* to) {
  const hn::Repartition<uint8_t, D> bytes;
  hn::StoreU(hn::BitCast(bytes, v), bytes, to);
}

template <class T, ReduceOp op>
struct WholeStep {
  static constexpr bool kFloat = std::is_floating_point_v<T>;
  static constexpr bool kWraps = !kFloat && (op == ReduceOp::kSum || op == ReduceOp::kProd);
  using D = hn::ScalableTag<
      typename std::conditional_t<kWraps, std::make_unsigned<T>, std::type_identity<T>>::type>;
  static HWY_INLINE std::size_t nbytes() { return hn::Lanes(D()) * sizeof(T); }
  HWY_INLINE void operator()(uint8_t* out, const uint8_t* a, const uint8_t* b) const {
    const D d;
    if constexpr (kFloat) {
      store_to(d, combine_floats<op>(load_from(d, a), load_from(d, b)), out);
    } else {
      store_to(d, combine_integers<op>(d, load_from(d, a), load_from(d, b)), out);
    }
  }
};

// avg of float32 and float64 when it completes. kDivides is false where multiplying by the reciprocal gives the same bits.
template <class T, bool kDivides>
struct CompletingStep {
  using D = hn::ScalableTag<T>;
  T total;
  static HWY_INLINE std::size_t nbytes() { return hn::Lanes(D()) * sizeof(T); }
  HWY_INLINE void operator()(uint8_t* out, const uint8_t* a, const uint8_t* b) const {
    const D d;
    const hn::VFromD<D> sum = hn::Add(load_from(d, a), load_from(d, b));
    if constexpr (kDivides) {
      store_to(d, hn::Div(sum, hn::Set(d, total)), out);
    } else {
      store_to(d, hn::Mul(sum, hn::Set(d, T{1} / total)), out);
    }
  }
};

template <class T>
struct ScalingStep {
  using D = hn::ScalableTag<T>;
  ScaleFactors<T> factors;
  static HWY_INLINE std::size_t nbytes() { return hn::Lanes(D()) * sizeof(T); }
  HWY_INLINE void operator()(uint8_t* out, const uint8_t* a, const uint8_t* b) const {
    const D d;
    const hn::VFromD<D> x = hn::Mul(load_from(d, a), hn::Set(d, factors.a));
    store_to(d, hn::Add(x, hn::Mul(load_from(d, b), hn::Set(d, factors.b))), out);
  }
};

// The 16-bit types are computed as vectors of float32, by one of these two.
template <ReduceOp op>
struct PlainLanes {
  static constexpr bool kRounds = op == ReduceOp::kSum || op == ReduceOp::kProd;
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return combine_floats<op>(a, b);
  }
};
template <bool kDivides>
struct MeanLanes {
  static constexpr bool kRounds = true;
  MeanFactors factors;
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    const hn::DFromV<V> d;
    const V sum = hn::Add(hn::Mul(a, hn::Set(d, factors.a)), hn::Mul(b, hn::Set(d, factors.b)));
    if constexpr (!kDivides) return sum;
    return hn::Div(sum, hn::Set(d, factors.divisor));
  }
};

// Odd bfloat16 elements are the high halves of 32-bit lanes, even ones the low halves: no element changes its lane.
// rounded by hand: the instructions for it flush subnormals, and Highway's own conversion truncates in some versions.
template <class Lanes>
struct BF16Step {
  using D = hn::ScalableTag<uint32_t>;
  using DF = hn::ScalableTag<float>;
  Lanes lanes;
  static HWY_INLINE std::size_t nbytes() { return hn::Lanes(D()) * sizeof(uint32_t); }

  // The 16 high bits of each lane are the result.
  static HWY_INLINE hn::VFromD<D> rounded(hn::VFromD<DF> value) {
    const D d;
    const hn::VFromD<D> bits = hn::BitCast(d, value);
    if constexpr (!Lanes::kRounds) return bits;
    const hn::VFromD<D> odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1u));
    const hn::VFromD<D> up = hn::Add(bits, hn::Add(hn::Set(d, 0x7fffu), odd));
    return hn::IfThenElse(hn::RebindMask(d, hn::IsNaN(value)), hn::Or(bits, hn::Set(d, 0x400000u)), up);
  }
  HWY_INLINE void operator()(uint8_t* out, const uint8_t* a, const uint8_t* b) const {
    const D d;
    const DF df;
    const hn::VFromD<D> x = load_from(d, a), y = load_from(d, b), high = hn::Set(d, 0xffff0000u);
    const hn::VFromD<D> odd =
        rounded(lanes(hn::BitCast(df, hn::And(x, high)), hn::BitCast(df, hn::And(y, high))));
    const hn::VFromD<D> even =
        rounded(lanes(hn::BitCast(df, hn::ShiftLeft<16>(x)), hn::BitCast(df, hn::ShiftLeft<16>(y))));
    store_to(d, hn::Or(hn::And(odd, high), hn::ShiftRight<16>(even)), out);
  }
};

// Instruction sets that convert float16 in hardware; on the others the portable loops do it.
#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)) || HWY_ARCH_ARM_A64
#define PC_CONVERTS_F16 1
template <class Lanes>
struct F16Step {
  using DF = hn::ScalableTag<float>;
  using DH = hn::Rebind<hwy::float16_t, DF>;
  Lanes lanes;
  static HWY_INLINE std::size_t nbytes() { return hn::Lanes(DF()) * sizeof(uint16_t); }
  HWY_INLINE void operator()(uint8_t* out, const uint8_t* a, const uint8_t* b) const {
    const DF df;
    const DH dh;
    const hn::VFromD<DF> x = hn::PromoteTo(df, load_from(dh, a)), y = hn::PromoteTo(df, load_from(dh, b));
    store_to(dh, hn::DemoteTo(dh, lanes(x, y)), out);
  }
};
#else
#define PC_CONVERTS_F16 0
#endif

// ---- loops

template <class Step>
HWY_INLINE void for_each(const Operands& operands, std::size_t element_bytes, const Step& step) {
  uint8_t* const out = reinterpret_cast<uint8_t*>(operands.out);
  const uint8_t* const a = reinterpret_cast<const uint8_t*>(operands.a);
  const uint8_t* const b = reinterpret_cast<const uint8_t*>(operands.b);
  const std::size_t nbytes = operands.count * element_bytes, piece = Step::nbytes();
  std::size_t i = 0;
  for (; nbytes - i >= piece; i += piece) step(out + i, a + i, b + i);
  if (i == nbytes) return;
  HWY_ALIGN uint8_t rest[3][HWY_MAX_BYTES] = {};  // what is left, filled up to a whole piece
  std::memcpy(rest[0], a + i, nbytes - i);
  std::memcpy(rest[1], b + i, nbytes - i);
  step(rest[2], rest[0], rest[1]);
  std::memcpy(out + i, rest[2], nbytes - i);
}

template <template <class> class Step, ReduceOp op>
HWY_INLINE void for_each_half(const Operands& operands) {
  if constexpr (op != ReduceOp::kAvg && op != ReduceOp::kScaledSum) {
    for_each(operands, 2, Step<PlainLanes<op>>{});
  } else {
    const MeanFactors factors = mean_or_scale_factors<op>(operands);
    if (factors.divisor == 1.0f) return for_each(operands, 2, Step<MeanLanes<false>>{{factors}});
    for_each(operands, 2, Step<MeanLanes<true>>{{factors}});
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
constexpr bool kVectorised = std::is_arithmetic_v<Element> && !is_logical(op) && !takes_pairs(op);

// The portable loops do the rest: compilers vectorise them well enough for what is rarely reduced.
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
template <class T, ReduceOp op>
requires(op != ReduceOp::kProd) struct Loop<Complex<T>, op> {
  static void run(const Operands& operands) {
    Operands parts = operands;
    parts.count *= 2;
    Loop<T, op>::run(parts);
  }
  static constexpr Kernel kKernel = &run;
};
template <ReduceOp op>
requires(!is_logical(op)) struct Loop<BF16, op> {
  static void run(const Operands& operands) { for_each_half<BF16Step, op>(operands); }
  static constexpr Kernel kKernel = &run;
};
#if PC_CONVERTS_F16
template <ReduceOp op>
requires(!is_logical(op)) struct Loop<F16, op> {
  static void run(const Operands& operands) { for_each_half<F16Step, op>(operands); }
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
    hwy::ChosenTarget
        chosen;  // our own, to look up the entry of one target; the library's global stays as it is
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
