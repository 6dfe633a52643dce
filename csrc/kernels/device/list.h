// The list of all reduction kernels: PC_KERNEL(the kernel's name after "pc_", the step that it
// repeats). reduce.cu makes a kernel of each entry, and the tests make a function. Sums do not
// depend on signs, so signed integers use the unsigned kernels. Types that are only compared use
// the kernels for their bits. kernel_choice.cc selects the kernel of each type.
#pragma once

#define PC_WHOLE_NUMBERS(X) X(u8, uint8_t) X(u16, uint16_t) X(u32, uint32_t) X(u64, uint64_t)
#define PC_SHORT_FLOATS(X) X(f16, F16) X(bf16, BF16) X(e4m3fn, E4M3FN) X(e5m2, E5M2)
#define PC_LONG_FLOATS(X) X(f32, float) X(f64, double)

#define PC_SUM(name, T) PC_KERNEL(sum_##name, Sum<T>)
#define PC_PROD(name, T) PC_KERNEL(prod_##name, Prod<T>)
#define PC_ORDER(name, T) PC_KERNEL(extreme_##name, Extreme<T>)
#define PC_PLACES(name, T) PC_KERNEL(place_##name, ExtremePlace<T>)
#define PC_WEIGHTED(name, T) PC_KERNEL(weighted_##name, Weighted<T>)
#define PC_LOGIC(name, T) PC_KERNEL(bits_##name, Bits<T>) PC_KERNEL(truth_##name, Truth<T>)

// clang-format off
#define PC_ALL_REDUCE_KERNELS                                                                 \
  PC_WHOLE_NUMBERS(PC_SUM) PC_SHORT_FLOATS(PC_SUM) PC_LONG_FLOATS(PC_SUM)                     \
  PC_WHOLE_NUMBERS(PC_PROD) PC_SHORT_FLOATS(PC_PROD) PC_LONG_FLOATS(PC_PROD)                  \
  PC_PROD(c64, Complex<float>) PC_PROD(c128, Complex<double>)                                 \
  PC_SHORT_FLOATS(PC_WEIGHTED) PC_LONG_FLOATS(PC_WEIGHTED)                                    \
  PC_WHOLE_NUMBERS(PC_ORDER) PC_WHOLE_NUMBERS(PC_LOGIC)                                       \
  PC_PLACES(u16, uint16_t) PC_PLACES(u32, uint32_t) PC_PLACES(u64, uint64_t)
// clang-format on
