// The arithmetic of one element on a GPU. nvcc compiles it for the kernels, and C++ for the tests,
// which compare it with the CPU's kernels: both must give the same bits, except for NaN payloads.
// It must be compiled without fused multiply-add.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define PC_INLINE __host__ __device__ __forceinline__
#else
#define PC_INLINE inline
#endif
#ifndef __CUDA_ARCH__
#include "kernels/float16.h"
#endif

namespace pc::device {

// Element types that C++ lacks, as their bits. NVIDIA's headers are not needed for them.
enum class F16 : uint16_t {};
enum class BF16 : uint16_t {};
enum class E4M3FN : uint8_t {};
enum class E5M2 : uint8_t {};
template <class T>
struct Complex {
  T re, im;
};
template <class T>
struct Located {
  T value, location;
};

template <class T, class U>
struct Same {
  static constexpr bool kYes = false;
};
template <class T>
struct Same<T, T> {
  static constexpr bool kYes = true;
};
template <class T>
constexpr bool kShortFloat =
    Same<T, F16>::kYes || Same<T, BF16>::kYes || Same<T, E4M3FN>::kYes || Same<T, E5M2>::kYes;
template <class T>
constexpr bool kFloat = kShortFloat<T> || Same<T, float>::kYes || Same<T, double>::kYes;

// ---- bits

template <int nbytes>
struct UnsignedOf;
template <>
struct UnsignedOf<1> {
  using Type = uint8_t;
};
template <>
struct UnsignedOf<2> {
  using Type = uint16_t;
};
template <>
struct UnsignedOf<4> {
  using Type = uint32_t;
};
template <>
struct UnsignedOf<8> {
  using Type = uint64_t;
};
template <class T>
using Unsigned = typename UnsignedOf<sizeof(T)>::Type;

template <class To, class From>
PC_INLINE To with_bits_of(From from) {
  static_assert(sizeof(To) == sizeof(From), "as many bits");
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}
PC_INLINE float as_float(uint32_t bits) { return with_bits_of<float>(bits); }
PC_INLINE uint32_t bits_of(float value) { return with_bits_of<uint32_t>(value); }

// ---- short floats: exact conversion to float32, and back with rounding to nearest even

// A GPU has an instruction for each conversion. On the CPU kernels/float16.h gives the same bits.
PC_INLINE float to_float(F16 element) {
#ifdef __CUDA_ARCH__
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<uint16_t>(element)));
  return value;
#else
  return pc::to_float(static_cast<pc::F16>(element));
#endif
}
PC_INLINE F16 to_f16(float value) {
#ifdef __CUDA_ARCH__
  uint16_t element;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(element) : "f"(value));
  return static_cast<F16>(element);
#else
  return static_cast<F16>(pc::to_f16(value));
#endif
}

PC_INLINE float to_float(BF16 element) { return as_float(static_cast<uint32_t>(element) << 16); }
PC_INLINE BF16 to_bf16(float value) {
  const uint32_t bits = bits_of(value);
  const uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
  const uint32_t quiet = bits | 0x400000;  // a NaN with its payload in the low half must not become infinity
  return static_cast<BF16>(((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded) >> 16);
}

PC_INLINE float to_float(E5M2 element) {  // the upper half of a float16
  return to_float(static_cast<F16>(static_cast<uint32_t>(element) << 8));
}
PC_INLINE float to_float(E4M3FN element) {
  const uint32_t bits = static_cast<uint32_t>(element), magnitude = bits & 0x7f;
  // In the bit positions of a float16, the value is too small by a factor of 2^8. This holds for
  // subnormals too.
  const float value = to_float(static_cast<F16>((magnitude << 7) | (bits & 0x80) << 8)) * 256.0f;
  return magnitude == 0x7f ? as_float(0x7fc00000) : value;
}

// Rounds a magnitude of at most 0x7f800000 to an 8-bit format. A value that is too large gives bits
// beyond the largest number.
template <uint32_t fraction_bits, uint32_t bias>
PC_INLINE uint32_t round_to_8_bits(uint32_t magnitude) {
  constexpr uint32_t kShift = 23 - fraction_bits, kSmallestNormal = (127 - bias + 1) << 23;
  constexpr uint32_t kUnit = kSmallestNormal + (kShift << 23);  // its last bit is the smallest subnormal
  const uint32_t subnormal = bits_of(as_float(magnitude) + as_float(kUnit)) - kUnit;
  const uint32_t odd = (magnitude >> kShift) & 1;
  const uint32_t normal = (magnitude - ((127 - bias) << 23) + (1u << (kShift - 1)) - 1 + odd) >> kShift;
  return magnitude < kSmallestNormal ? subnormal : normal;
}
PC_INLINE uint32_t smaller(uint32_t a, uint32_t b) { return a < b ? a : b; }
PC_INLINE E4M3FN to_e4m3fn(float value) {
  const uint32_t bits = bits_of(value);
  const uint32_t rounded = round_to_8_bits<3, 7>(smaller(bits & 0x7fffffff, 0x7f800000));
  return static_cast<E4M3FN>(smaller(rounded, 0x7f) | ((bits >> 24) & 0x80));  // the format has no infinity
}
PC_INLINE E5M2 to_e5m2(float value) {
  const uint32_t bits = bits_of(value), magnitude = bits & 0x7fffffff;
  const uint32_t number = smaller(round_to_8_bits<2, 15>(smaller(magnitude, 0x7f800000)), 0x7c);
  return static_cast<E5M2>((magnitude > 0x7f800000 ? 0x7e : number) | ((bits >> 24) & 0x80));
}

// The value in which an element is computed, and the conversion back.
template <class T>
PC_INLINE auto decode(T element) {
  if constexpr (kShortFloat<T>) {
    return to_float(element);
  } else {
    return element;
  }
}
template <class T, class Value>
PC_INLINE T encode(Value value) {
  if constexpr (Same<T, F16>::kYes) {
    return to_f16(value);
  } else if constexpr (Same<T, BF16>::kYes) {
    return to_bf16(value);
  } else if constexpr (Same<T, E4M3FN>::kYes) {
    return to_e4m3fn(value);
  } else if constexpr (Same<T, E5M2>::kYes) {
    return to_e5m2(value);
  } else {
    return value;
  }
}

// ---- sums and products

template <class T>
PC_INLINE T sum(T a, T b) {
  if constexpr (kFloat<T>) {
    return encode<T>(decode(a) + decode(b));
  } else {
    return static_cast<T>(a + b);
  }
}
template <class T>
PC_INLINE T product(T a, T b) {
  if constexpr (kFloat<T>) {
    return encode<T>(decode(a) * decode(b));
  } else {
    return static_cast<T>((a + 0u) * (b + 0u));  // 16-bit products would overflow an int
  }
}
template <class T>
PC_INLINE Complex<T> product(Complex<T> a, Complex<T> b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

// ---- order

// Maps an element's bits to a key. The order of the keys, as unsigned numbers, is the order of the
// elements, NaN first. The three members select signed integers, unsigned integers or floats (-0
// below +0), and whether the smallest or the largest element comes first.
template <class U>
struct Order {
  U flip;           // bits to invert
  U when_negative;  // further bits to invert if the sign bit is set
  U largest;        // a greater magnitude is NaN
  PC_INLINE U key(U bits) const {
    constexpr U kMagnitude = static_cast<U>(static_cast<U>(~U{0}) >> 1);
    if ((bits & kMagnitude) > largest) return 0;
    return static_cast<U>(bits ^ flip ^ (bits > kMagnitude ? when_negative : U{0}));
  }
};

}  // namespace pc::device
