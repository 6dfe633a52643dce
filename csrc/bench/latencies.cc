#include "bench/latencies.h"

#include <algorithm>
#include <cmath>

namespace pc::bench {

std::vector<int64_t> differences(std::span<const int64_t> ends) {
  std::vector<int64_t> result;
  result.reserve(ends.size());
  for (std::size_t i = 1; i < ends.size(); ++i) result.push_back(ends[i] - ends[i - 1]);
  return result;
}

int64_t percentile(std::vector<int64_t> values, double share) {
  const double rank = std::ceil(share * static_cast<double>(values.size()));
  const std::size_t index = rank < 1 ? 0 : std::min(values.size(), static_cast<std::size_t>(rank)) - 1;
  const auto nth = values.begin() + static_cast<std::ptrdiff_t>(index);
  std::nth_element(values.begin(), nth, values.end());
  return *nth;
}

Latencies latencies(const std::vector<int64_t>& each, int64_t total_ns, int trips) {
  const auto seconds = [trips](double ns) { return ns / 1e9 / trips; };
  return {seconds(static_cast<double>(total_ns) / static_cast<double>(each.size())),
          seconds(static_cast<double>(percentile(each, 0.50))),
          seconds(static_cast<double>(percentile(each, 0.99)))};
}

}  // namespace pc::bench
