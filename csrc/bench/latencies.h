// Computes the durations of calls from the times at which ranks completed them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace pc::bench {

struct Latencies {
  double mean_s = 0;            // mean over the iterations
  double p50_s = 0, p99_s = 0;  // of single iterations
};

// Returns the time from each completion to the next.
inline std::vector<int64_t> differences(std::span<const int64_t> ends) {
  std::vector<int64_t> result;
  for (std::size_t i = 1; i < ends.size(); ++i) result.push_back(ends[i] - ends[i - 1]);
  return result;
}

// Returns a percentile by the nearest-rank method: the smallest value that at least the fraction
// `share` of all values does not exceed. `share` is from 0 to 1; `values` must not be empty.
template <class Value = int64_t>
Value percentile(std::vector<Value> values, double share) {
  const double rank = std::ceil(share * static_cast<double>(values.size()));
  const std::size_t index = rank < 1 ? 0 : std::min(values.size(), static_cast<std::size_t>(rank)) - 1;
  const auto nth = values.begin() + static_cast<std::ptrdiff_t>(index);
  std::nth_element(values.begin(), nth, values.end());
  return *nth;
}

// `each` is the time in ns of each iteration, `total_ns` that of all iterations, and `trips` the
// number of trips in one iteration.
inline Latencies latencies(const std::vector<int64_t>& each, int64_t total_ns, int trips) {
  const auto seconds = [trips](double ns) { return ns / 1e9 / trips; };
  return {seconds(static_cast<double>(total_ns) / static_cast<double>(each.size())),
          seconds(static_cast<double>(percentile(each, 0.50))),
          seconds(static_cast<double>(percentile(each, 0.99)))};
}

}  // namespace pc::bench
