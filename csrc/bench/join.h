// Makes this process, or thread, one of the ranks.
#pragma once

#include <memory>

#include "bench/options.h"
#include "bench/place.h"
#include "comm/runtime.h"

namespace pc::bench {

// What a flag does not say, the environment does. Collective.
Result<std::unique_ptr<Runtime>> join(const Options& options, const Place& place);

}  // namespace pc::bench
