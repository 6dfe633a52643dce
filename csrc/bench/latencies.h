// From when ranks were done with each call to how long calls take.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace pc::bench {

struct Latencies {
  double mean_s = 0;            // over the iterations
  double p50_s = 0, p99_s = 0;  // of single ones
};

// The time from each completion to the next.
std::vector<int64_t> differences(std::span<const int64_t> ends);
// By nearest rank: the smallest value that so large a part of all does not exceed. `share` from 0 to 1; needs a value.
int64_t percentile(std::vector<int64_t> values, double share);
// `each` in ns, of single iterations; `total_ns` of all of them; `trips` in one iteration.
Latencies latencies(const std::vector<int64_t>& each, int64_t total_ns, int trips);

}  // namespace pc::bench
