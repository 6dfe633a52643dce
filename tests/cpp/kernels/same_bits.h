// Every reduction, and the comparison of the results of two implementations. Only the payload of a
// NaN may differ.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "bytes.h"
#include "kernels/reduce.h"

namespace pc {

// Returns the type that is compared and generated element by element: complex numbers by their
// parts.
inline DType part_of(DType dtype) {
  return dtype == DType::kC64 ? DType::kF32 : dtype == DType::kC128 ? DType::kF64 : dtype;
}

inline bool is_nan(DType dtype, uint64_t bits) {
  switch (dtype) {
    case DType::kF8E4M3FN: return (bits & 0x7f) == 0x7f;
    case DType::kF8E5M2: return (bits & 0x7f) > 0x7c;
    case DType::kF16: return (bits & 0x7fff) > 0x7c00;
    case DType::kBF16: return (bits & 0x7fff) > 0x7f80;
    case DType::kF32: return (bits & 0x7fffffff) > 0x7f800000;
    case DType::kF64: return (bits & 0x7fffffffffffffff) > 0x7ff0000000000000;
    default: return false;
  }
}
inline uint64_t element(const std::byte* data, std::size_t i, DType dtype) {
  uint64_t bits = 0;
  std::memcpy(&bits, data + i * size_of(dtype), size_of(dtype));
  return bits;
}
inline void expect_same(const std::byte* expected, const std::byte* found, std::size_t elements, DType of,
                        const std::string& what) {
  const DType dtype = part_of(of);
  const std::size_t count = elements * size_of(of) / size_of(dtype);
  if (count == 0 || std::memcmp(expected, found, count * size_of(dtype)) == 0) return;
  for (std::size_t i = 0; i < count; ++i) {
    const uint64_t x = element(expected, i, dtype), y = element(found, i, dtype);
    ASSERT_TRUE(x == y || (is_nan(dtype, x) && is_nan(dtype, y)))
        << what << ": element " << i << " of " << count << " is " << std::hex << y << ", portable " << x;
  }
}

inline constexpr double kFactor = 0.3;  // not exact in binary, so each product is rounded

// Calls check(dtype, how, name).
template <class Check>
void for_every_kernel(Check check) {
  for (int d = 0; d < kDTypeCount; ++d) {
    for (int o = 0; o < kReduceOpCount; ++o) {
      const DType dtype = static_cast<DType>(d);
      const ReduceOp op = static_cast<ReduceOp>(o);
      if (!can_reduce(dtype, op)) continue;
      const bool weighed = op == ReduceOp::kAvg || op == ReduceOp::kScaledSum;
      check(dtype, Reduction(op, weighed ? kFactor : 1),
            std::string(name_of(dtype)) + " " + std::string(name_of(op)));
    }
  }
}

}  // namespace pc
