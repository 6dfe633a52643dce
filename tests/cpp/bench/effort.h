// The number of repetitions that tests measure.
#pragma once

#include "bench/measure.h"

namespace pc::bench {

inline constexpr Effort kLittle = {.warm_up = 1, .iterations = 7};

}  // namespace pc::bench
