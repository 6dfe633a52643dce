// What a mean is made of.
#pragma once

#include <cstdint>

namespace pc {

// How many ranks' contributions each operand holds, and how many there are in all. Looked at by kAvg and kScaledSum.
struct Weights {
  uint32_t a = 1, b = 1, total = 2;
};

}  // namespace pc
