// Ranks as threads of this process: one NCCL and one driver for all of them.
#pragma once

#include <functional>

#include "bench/place.h"

namespace pc::bench {

// As run_here(), but for what no thread can do: nobody ends the others, who hear of a rank's end by their connections to it.
int run_threads_here(Rank count, const std::function<Status(const Place&)>& run);

}  // namespace pc::bench
