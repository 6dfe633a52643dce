// The vector operations on one piece of the operands. Included once per instruction set, only by
// reduce_highway.cc.
#if defined(PC_KERNELS_REDUCE_STEPS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef PC_KERNELS_REDUCE_STEPS_INL_H
#undef PC_KERNELS_REDUCE_STEPS_INL_H
#else
#define PC_KERNELS_REDUCE_STEPS_INL_H
#endif

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/kernel_table.h"

HWY_BEFORE_NAMESPACE();
namespace pc {
namespace HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
namespace hn = hwy::HWY_NAMESPACE;

// ---- arithmetic of one vector

template <ReduceOp op, class V>
HWY_INLINE V combine_floats(V a, V b) {
  if constexpr (op == ReduceOp::kSum) {
    return hn::Add(a, b);
  } else if constexpr (op == ReduceOp::kProd) {
    return hn::Mul(a, b);
  } else {  // uses comparisons, because hardware instructions differ for NaN and -0
    const V nan_or = hn::IfThenElse(hn::IsNaN(a), a, b);  // the result if a neither precedes b nor equals it
    if constexpr (op == ReduceOp::kMin) {
      return hn::IfThenElse(hn::Lt(a, b), a, hn::IfThenElse(hn::Eq(a, b), hn::Or(a, b), nan_or));
    } else {
      return hn::IfThenElse(hn::Gt(a, b), a, hn::IfThenElse(hn::Eq(a, b), hn::And(a, b), nan_or));
    }
  }
}

// D is unsigned for sum and prod, which wrap, and the element's own type for min and max.
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
  } else {  // bytes: the low byte of a 16-bit product depends only on the low bytes of its factors
    const hn::Repartition<uint16_t, D> wide;
    const auto x = hn::BitCast(wide, a), y = hn::BitCast(wide, b);
    const auto even = hn::And(hn::Mul(x, y), hn::Set(wide, 0xff));
    const auto odd = hn::ShiftLeft<8>(hn::Mul(hn::ShiftRight<8>(x), hn::ShiftRight<8>(y)));
    return hn::BitCast(d, hn::Or(even, odd));
  }
}

// ---- steps: the result of one piece of the operands, a vector of Step::D

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
  HWY_INLINE hn::VFromD<D> operator()(const uint8_t* a, const uint8_t* b) const {
    const D d;
    if constexpr (kFloat) {
      return combine_floats<op>(load_from(d, a), load_from(d, b));
    } else {
      return combine_integers<op>(d, load_from(d, a), load_from(d, b));
    }
  }
};

// The last step of avg of float32 and float64. kDivides is false if multiplying by the reciprocal
// of `total` gives the same bits.
template <class T, bool kDivides>
struct CompletingStep {
  using D = hn::ScalableTag<T>;
  T total;
  static HWY_INLINE std::size_t nbytes() { return hn::Lanes(D()) * sizeof(T); }
  HWY_INLINE hn::VFromD<D> operator()(const uint8_t* a, const uint8_t* b) const {
    const D d;
    const hn::VFromD<D> sum = hn::Add(load_from(d, a), load_from(d, b));
    if constexpr (kDivides) {
      return hn::Div(sum, hn::Set(d, total));
    } else {
      return hn::Mul(sum, hn::Set(d, T{1} / total));
    }
  }
};

template <class T>
struct ScalingStep {
  using D = hn::ScalableTag<T>;
  ScaleFactors<T> factors;
  static HWY_INLINE std::size_t nbytes() { return hn::Lanes(D()) * sizeof(T); }
  HWY_INLINE hn::VFromD<D> operator()(const uint8_t* a, const uint8_t* b) const {
    const D d;
    const hn::VFromD<D> x = hn::Mul(load_from(d, a), hn::Set(d, factors.a));
    return hn::Add(x, hn::Mul(load_from(d, b), hn::Set(d, factors.b)));
  }
};

// land, lor, lxor, and all operations of bool: the result has the bits of 1 or of 0. T is unsigned,
// as wide as the element.
enum class Truth { kAnd, kOr, kXor };
template <class T, Truth what, bool kFloat>
struct TruthStep {
  using D = hn::ScalableTag<T>;
  T one;
  static HWY_INLINE std::size_t nbytes() { return hn::Lanes(D()) * sizeof(T); }
  static HWY_INLINE hn::MFromD<D> is_true(const uint8_t* from) {
    const D d;
    const hn::VFromD<D> bits = load_from(d, from);
    // the addition shifts out the sign, so that -0 is false
    return hn::Ne(kFloat ? hn::Add(bits, bits) : bits, hn::Zero(d));
  }
  HWY_INLINE hn::VFromD<D> operator()(const uint8_t* a, const uint8_t* b) const {
    const D d;
    const hn::MFromD<D> x = is_true(a), y = is_true(b);
    const hn::MFromD<D> truth = what == Truth::kAnd  ? hn::And(x, y)
                                : what == Truth::kOr ? hn::Or(x, y)
                                                     : hn::Xor(x, y);
    return hn::IfThenElseZero(truth, hn::Set(d, one));
  }
};

// minloc, maxloc: values in the even lanes, locations in the odd ones. T has 4 or 8 bytes.
template <class T, ReduceOp op>
struct PlaceStep {
  using D = hn::ScalableTag<T>;
  using V = hn::VFromD<D>;
  static constexpr bool kFloat = std::is_floating_point_v<T>;
  static constexpr bool kMinimum = op == ReduceOp::kMinLoc;
  using DKey = std::conditional_t<kFloat, hn::RebindToSigned<D>, D>;
  static HWY_INLINE std::size_t nbytes() { return hn::Lanes(D()) * sizeof(T); }

  // Returns integers in the order of the values, in both lanes of a pair: -0 is below +0, NaN is
  // the most extreme.
  static HWY_INLINE hn::VFromD<DKey> key(V pair) {
    const DKey key;
    const V value = hn::DupEven(pair);
    if constexpr (!kFloat) {
      return value;
    } else {
      using Key = hn::TFromD<DKey>;
      constexpr Key kLargest = std::numeric_limits<Key>::max();
      const auto nan = hn::RebindMask(key, hn::IsNaN(value));
      const auto bits = hn::BitCast(key, value);
      const auto ordered = hn::Xor(bits, hn::And(hn::BroadcastSignBit(bits), hn::Set(key, kLargest)));
      return hn::IfThenElse(nan, hn::Set(key, kMinimum ? std::numeric_limits<Key>::min() : kLargest),
                            ordered);
    }
  }
  static HWY_INLINE V smaller(V a, V b) {
    if constexpr (kFloat) {
      return combine_floats<ReduceOp::kMin>(a, b);
    } else {
      return hn::Min(a, b);
    }
  }
  HWY_INLINE V operator()(const uint8_t* a, const uint8_t* b) const {
    const D d;
    const V x = load_from(d, a), y = load_from(d, b);
    const auto of_x = key(x), of_y = key(y);
    const auto wins = hn::RebindMask(d, kMinimum ? hn::Lt(of_x, of_y) : hn::Lt(of_y, of_x));
    const auto equal = hn::RebindMask(d, hn::Eq(of_x, of_y));
    return hn::IfThenElse(equal, hn::OddEven(smaller(x, y), x), hn::IfThenElse(wins, x, y));
  }
};

// A product of complex numbers: real parts are in the even lanes, imaginary parts in the odd ones.
template <class T>
struct ComplexProductStep {
  using D = hn::ScalableTag<T>;
  static HWY_INLINE std::size_t nbytes() { return hn::Lanes(D()) * sizeof(T); }
  HWY_INLINE hn::VFromD<D> operator()(const uint8_t* a, const uint8_t* b) const {
    const D d;
    const hn::VFromD<D> x = load_from(d, a), y = load_from(d, b);
    const hn::VFromD<D> by_real = hn::Mul(hn::DupEven(x), y);
    const hn::VFromD<D> by_imaginary = hn::Mul(hn::DupOdd(x), hn::Reverse2(d, y));
    return hn::OddEven(hn::Add(by_real, by_imaginary), hn::Sub(by_real, by_imaginary));
  }
};

// The short floats are computed as vectors of float32, by one of the following two types.
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

// Odd bfloat16 elements are the high halves of 32-bit lanes, and even elements the low halves, so
// no element moves to another lane. Rounding is in software: the hardware instructions flush
// subnormals, and Highway's own conversion truncates in some versions.
template <class Lanes>
struct BF16Step {
  using D = hn::ScalableTag<uint16_t>;
  using DW = hn::ScalableTag<uint32_t>;
  using DF = hn::ScalableTag<float>;
  using V = hn::VFromD<D>;
  using VF = hn::VFromD<DF>;
  Lanes lanes;
  static HWY_INLINE std::size_t nbytes() { return hn::Lanes(D()) * sizeof(uint16_t); }

  // Rounds all elements at once to nearest even: takes the high half of each float32, and adds one
  // if the low half is more than half a unit, or if it is exactly half a unit and the high half is
  // odd. A NaN stays a NaN: its payload comes from a bfloat16 operand, so its low half is 0.
  static HWY_INLINE V rounded(VF odd_value, VF even_value) {
    const D d;
    const DW dw;
    const hn::VFromD<DW> odd = hn::BitCast(dw, odd_value), even = hn::BitCast(dw, even_value);
    const V high = hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<16>(even)));
    if constexpr (!Lanes::kRounds) return high;
    const V low = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<16>(odd)), hn::BitCast(d, even));
    const V one = hn::Set(d, uint16_t{1});
    const V beyond_half = hn::SaturatedSub(hn::Or(low, hn::And(high, one)), hn::Set(d, uint16_t{0x8000}));
    return hn::Add(high, hn::Min(beyond_half, one));
  }
  HWY_INLINE V operator()(const uint8_t* a, const uint8_t* b) const {
    const DW dw;
    const DF df;
    const hn::VFromD<DW> x = load_from(dw, a), y = load_from(dw, b), high = hn::Set(dw, 0xffff0000u);
    const VF odd = lanes(hn::BitCast(df, hn::And(x, high)), hn::BitCast(df, hn::And(y, high)));
    const VF even = lanes(hn::BitCast(df, hn::ShiftLeft<16>(x)), hn::BitCast(df, hn::ShiftLeft<16>(y)));
    return rounded(odd, even);
  }
};

// The 8-bit types, converted as in kernels/float8.h, one vector of float32 at a time.
template <class Element, class Lanes>
struct F8Step {
  static constexpr bool kHasInfinity = std::is_same_v<Element, E5M2>;
  // moves the type's fraction to the position of a float32's
  static constexpr int kShift = kHasInfinity ? 21 : 20;
  static constexpr int kBias = kHasInfinity ? 15 : 7;
  static constexpr int32_t kRebias = (127 - kBias) << 23, kSmallestNormal = (127 - kBias + 1) << 23;
  using DF = hn::ScalableTag<float>;
  using DI = hn::RebindToSigned<DF>;
  using D = hn::Rebind<uint8_t, DF>;
  using VF = hn::VFromD<DF>;
  using VI = hn::VFromD<DI>;
  Lanes lanes;
  static HWY_INLINE std::size_t nbytes() { return hn::Lanes(D()); }

  static HWY_INLINE VF decoded(const uint8_t* from) {
    const DI d;
    const DF df;
    const VI value = hn::PromoteTo(d, load_from(D(), from));
    const VI magnitude = hn::ShiftLeft<kShift>(hn::And(value, hn::Set(d, 0x7f)));
    // subtracted again, because a subnormal has no leading bit
    const VI leading = hn::Set(d, kSmallestNormal);
    const VF subnormal = hn::Sub(hn::BitCast(df, hn::Add(magnitude, leading)), hn::BitCast(df, leading));
    const VI normal = hn::Add(magnitude, hn::Set(d, kRebias));
    const VI number =
        hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 1 << 23)), hn::BitCast(d, subnormal), normal);
    const VI special = kHasInfinity ? hn::Add(normal, hn::Set(d, kRebias)) : hn::Set(d, 0x7fc00000);
    const auto is_special = hn::Gt(magnitude, hn::Set(d, (kHasInfinity ? 0x7b : 0x7e) << kShift));
    const VI sign = hn::ShiftLeft<24>(hn::And(value, hn::Set(d, 0x80)));
    return hn::BitCast(df, hn::Or(hn::IfThenElse(is_special, special, number), sign));
  }
  // Rounds to nearest even; a value that is too large gives bits beyond the largest number.
  static HWY_INLINE VI rounded(VI magnitude) {
    const DI d;
    const DF df;
    const VI unit = hn::Set(d, kSmallestNormal + (kShift << 23));  // its last bit is the smallest subnormal
    const VF on_unit = hn::Add(hn::BitCast(df, magnitude), hn::BitCast(df, unit));
    const VI subnormal = hn::Sub(hn::BitCast(d, on_unit), unit);
    const VI odd = hn::And(hn::ShiftRight<kShift>(magnitude), hn::Set(d, 1));
    const VI up = hn::Add(magnitude, hn::Set(d, (1 << (kShift - 1)) - 1 - kRebias));
    const VI normal = hn::ShiftRight<kShift>(hn::Add(up, odd));
    return hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, kSmallestNormal)), subnormal, normal);
  }
  static HWY_INLINE hn::VFromD<D> encoded(VF value) {
    const DI d;
    const VI infinity = hn::Set(d, 0x7f800000), bits = hn::BitCast(d, value);
    const VI magnitude = hn::And(bits, hn::Set(d, 0x7fffffff));
    const VI most = hn::Set(d, kHasInfinity ? 0x7c : 0x7f);
    VI number = hn::Min(rounded(hn::Min(magnitude, infinity)), most);
    if constexpr (kHasInfinity) {
      number = hn::IfThenElse(hn::Gt(magnitude, infinity), hn::Set(d, 0x7e), number);
    }
    const VI sign = hn::And(hn::ShiftRight<24>(bits), hn::Set(d, 0x80));
    return hn::DemoteTo(D(), hn::Or(number, sign));
  }
  HWY_INLINE hn::VFromD<D> operator()(const uint8_t* a, const uint8_t* b) const {
    return encoded(lanes(decoded(a), decoded(b)));
  }
};
template <class Lanes>
using E4M3FNStep = F8Step<E4M3FN, Lanes>;
template <class Lanes>
using E5M2Step = F8Step<E5M2, Lanes>;

// Instruction sets that convert float16 in hardware; all other targets use the portable loops.
#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)) || HWY_ARCH_ARM_A64
#define PC_CONVERTS_F16 1
template <class Lanes>
struct F16Step {
  using DF = hn::ScalableTag<float>;
  using D = hn::Rebind<hwy::float16_t, DF>;
  Lanes lanes;
  static HWY_INLINE std::size_t nbytes() { return hn::Lanes(DF()) * sizeof(uint16_t); }
  HWY_INLINE hn::VFromD<D> operator()(const uint8_t* a, const uint8_t* b) const {
    const DF df;
    const D d;
    const hn::VFromD<DF> x = hn::PromoteTo(df, load_from(d, a)), y = hn::PromoteTo(df, load_from(d, b));
    return hn::DemoteTo(d, lanes(x, y));
  }
};
#else
#define PC_CONVERTS_F16 0
#endif

#endif  // a target with vectors
}  // namespace HWY_NAMESPACE
}  // namespace pc
HWY_AFTER_NAMESPACE();

#endif  // once per instruction set
