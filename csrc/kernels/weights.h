// The weights of the two operands of a reduction.
#pragma once

#include <cstdint>

namespace pc {

// How many ranks contributed to operand a, to operand b, and to the complete result. Used by kAvg
// and kScaledSum.
struct Weights {
  uint32_t a = 1, b = 1, total = 2;
};

}  // namespace pc
