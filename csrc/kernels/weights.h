// The weights of the two operands of a reduction.
#pragma once

#include <cstdint>

namespace pc {

// The number of ranks' contributions in each operand, and the number of all contributions. Used by
// kAvg and kScaledSum.
struct Weights {
  uint32_t a = 1, b = 1, total = 2;
};

}  // namespace pc
