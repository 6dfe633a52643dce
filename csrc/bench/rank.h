// One rank of the benchmark: joins the others, measures, and on rank 0 prints.
#pragma once

#include "bench/options.h"
#include "bench/place.h"

namespace pc::bench {

// Wrong results are an error of rank 0.
Status run_rank(const Options& options, const Place& place);

}  // namespace pc::bench
