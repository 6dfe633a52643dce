// The operation of a kernel at one step of its chain, on two elements or on a single one.
#pragma once

#include "kernels/device/arguments.h"
#include "kernels/device/element.h"

namespace pc::device {

// The base of the steps that leave a single source unchanged. kAnyWidth: the step works on whole
// words, whatever the size of their elements is. kVectors: the kernel reads vectors. Otherwise it
// reads one element after the other, which halves the code; vectors are for the reductions that
// training uses most.
struct AsItIs {
  static constexpr bool kAnyWidth = false, kVectors = false;
  PC_INLINE AsItIs(const ReduceArguments&, int) {}
  template <class T>
  PC_INLINE T alone(T a) const {
    return a;
  }
};

template <class T>
struct Sum : AsItIs {
  using Element = T;
  static constexpr bool kVectors = true;
  using AsItIs::AsItIs;
  PC_INLINE T together(T a, T b) const { return sum(a, b); }
};
template <class T>
struct Prod : AsItIs {
  using Element = T;
  using AsItIs::AsItIs;
  PC_INLINE T together(T a, T b) const { return product(a, b); }
};

// min and max of integers and floats, on their bits.
template <class U>
struct Extreme : AsItIs {
  using Element = U;
  static constexpr bool kVectors = true;
  Order<U> order;
  PC_INLINE Extreme(const ReduceArguments& how, int k)
      : AsItIs(how, k),
        order{static_cast<U>(how.flip), static_cast<U>(how.when_negative), static_cast<U>(how.largest)} {}
  PC_INLINE U together(U a, U b) const { return order.key(b) < order.key(a) ? b : a; }
};
// minloc and maxloc. Equal values get the smaller location.
template <class U>
struct ExtremePlace : AsItIs {
  using Element = Located<U>;
  Order<U> values, locations;
  PC_INLINE ExtremePlace(const ReduceArguments& how, int k)
      : AsItIs(how, k),
        values{static_cast<U>(how.flip), static_cast<U>(how.when_negative), static_cast<U>(how.largest)},
        locations{static_cast<U>(how.location_flip), values.when_negative, values.largest} {}
  PC_INLINE Element together(Element a, Element b) const {
    const U x = values.key(a.value), y = values.key(b.value);
    if (x != y) return x < y ? a : b;
    return {a.value, locations.key(b.location) < locations.key(a.location) ? b.location : a.location};
  }
};

// avg and scaled sums. A factor that is not needed is 1, which changes no bit.
template <class T>
struct Weighted {
  using Element = T;
  static constexpr bool kAnyWidth = false, kVectors = true;
  using Value = decltype(decode(T{}));
  Value a, b, divisor;
  PC_INLINE Weighted(const ReduceArguments& how, int k)
      : a(static_cast<Value>(how.steps[k - 1].a)),
        b(static_cast<Value>(how.steps[k - 1].b)),
        divisor(static_cast<Value>(how.steps[k - 1].divisor)) {}
  PC_INLINE T together(T x, T y) const {
    const Value sum = decode(x) * a + decode(y) * b;
    return encode<T>(divisor == Value{1} ? sum : sum / divisor);
  }
  PC_INLINE T alone(T x) const { return encode<T>(decode(x) * a); }
};

// band, bor and bxor, on words of any width.
template <class T>
struct Bits : AsItIs {
  using Element = T;
  static constexpr bool kAnyWidth = true, kVectors = true;
  uint64_t both, one_of_them;
  PC_INLINE Bits(const ReduceArguments& how, int k)
      : AsItIs(how, k),
        both(how.both),
        one_of_them(how.one_of_them) {}
  template <class U>
  PC_INLINE U together(U a, U b) const {
    return static_cast<U>((a & b & static_cast<U>(both)) | ((a ^ b) & static_cast<U>(one_of_them)));
  }
};

// land, lor, lxor, and all operations of bool. T is as wide as the element.
template <class T>
struct Truth {
  using Element = T;
  static constexpr bool kAnyWidth = false, kVectors = false;
  T both, one_of_them, magnitude, truth;
  PC_INLINE Truth(const ReduceArguments& how, int)
      : both(static_cast<T>(how.both)),
        one_of_them(static_cast<T>(how.one_of_them)),
        magnitude(static_cast<T>(how.magnitude)),
        truth(static_cast<T>(how.truth)) {}
  PC_INLINE T together(T x, T y) const {
    const T a = alone(x), b = alone(y);
    return static_cast<T>((a & b & both) | ((a ^ b) & one_of_them));
  }
  PC_INLINE T alone(T x) const { return (x & magnitude) != 0 ? truth : T{0}; }
};

}  // namespace pc::device
