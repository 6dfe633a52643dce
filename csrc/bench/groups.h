// Which ranks of the world measure together.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "base/types.h"

namespace pc::bench {

// "": the world. "0,2": these two, and the others wait. "even-odd": both halves, at the same time. No rank is in two; the
// first one's first rank prints.
Result<std::vector<std::vector<Rank>>> groups(const std::string& words, Rank size);

}  // namespace pc::bench
