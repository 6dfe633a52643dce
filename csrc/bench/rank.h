// One rank of the benchmark: joins the other ranks and measures. Rank 0, or the first rank of the
// first group, prints.
#pragma once

#include "bench/options.h"
#include "bench/role.h"

namespace pc::bench {

// Fails with kUnsupported and the reason if the measurement is not possible here. If results are
// wrong, the rank that prints fails.
Status run_rank(const Options& options, const Role& role);

}  // namespace pc::bench
