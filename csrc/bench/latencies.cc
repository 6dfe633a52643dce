#include "bench/latencies.h"

namespace pc::bench {

std::vector<int64_t> differences(std::span<const int64_t> ends) {
  std::vector<int64_t> result;
  result.reserve(ends.size());
  for (std::size_t i = 1; i < ends.size(); ++i) result.push_back(ends[i] - ends[i - 1]);
  return result;
}

Latencies latencies(const std::vector<int64_t>& each, int64_t total_ns, int trips) {
  const auto seconds = [trips](double ns) { return ns / 1e9 / trips; };
  return {seconds(static_cast<double>(total_ns) / static_cast<double>(each.size())),
          seconds(static_cast<double>(percentile(each, 0.50))),
          seconds(static_cast<double>(percentile(each, 0.99)))};
}

}  // namespace pc::bench
