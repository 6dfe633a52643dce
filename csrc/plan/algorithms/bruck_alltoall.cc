//   Idea     Data that must move `way` ranks ahead makes one hop of 2^k ranks for each bit k that
//            is set in `way`. In round k, all data with bit k set in its `way` makes this hop,
//            together in one message.
//   Cost     ceil(log2 n) rounds of one message, about n/2 parts each. Data in transit is stored in
//            the result, in the place of the part that arrives here after the same `way`. 2 *
//            ceil(n/2) chunks of scratch pack and unpack messages.
//   n = 4    round 0   -> 1 after: the parts that go 1 or 3 ranks     part of way 3: 0 -> 1 -> 3
//            round 1   -> 2 after: the parts that go 2 or 3 ranks
//   Source   J. Bruck, C.-T. Ho, S. Kipnis, E. Upfal and D. Weathersby, Efficient algorithms for
//            all-to-all communications in multiport message-passing systems, 1997.
//   Limits   Every part is sent log2(n)/2 times on average: for small parts on many ranks. Equal
//            parts only. Not in place.
#include <vector>

#include "plan/builder.h"

namespace pc {

Plan bruck_alltoall(const Shape& shape) {
  const uint32_t n = static_cast<uint32_t>(shape.size), self = static_cast<uint32_t>(shape.rank);
  const uint32_t most = n / 2 + n % 2;
  PlanBuilder plan("bruck", shape, n * n, n > 1 ? 2 * most : 0);
  const auto start = [&](uint32_t way) { return input(self * n + (self + way) % n); };
  const auto waiting = [&](uint32_t way) { return output((self + n - way) % n * n + self); };
  // Consecutive chunks of scratch. All parts have the same size, so it does not matter which parts
  // a message names.
  const auto packed = [](uint32_t first, uint32_t count) {
    return Place{Area::kScratch, {first, count}, {0, count}};
  };

  uint32_t sent = 0;
  for (uint32_t hop = 1; hop < n; hop *= 2) {
    std::vector<uint32_t> ways;
    for (uint32_t way = hop; way < n; ++way) {
      if ((way & hop) != 0) ways.push_back(way);
    }
    const uint32_t count = static_cast<uint32_t>(ways.size());
    for (uint32_t i = 0; i < count; ++i) {
      const bool has_moved = (ways[i] & (hop - 1)) != 0;
      const Place from = has_moved ? waiting(ways[i]) : start(ways[i]);
      plan.after(i == 0 ? sent : 0).copy(from, scratch(i, from.moved.first));
    }
    sent = plan.send(static_cast<Rank>((self + hop) % n), packed(0, count));
    plan.recv(static_cast<Rank>((self + n - hop) % n), packed(most, count));
    for (uint32_t i = 0; i < count; ++i) {
      const Place to = waiting(ways[i]);
      plan.copy(scratch(most + i, to.moved.first), to);
    }
  }
  return plan.take();
}

}  // namespace pc
