// The steps of ranks that access each other's arrays: the results are right in every order of
// execution, also in place.
#include "gpu/ipc/ipc_steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

namespace pc {
namespace {

using Array = std::vector<uint32_t>;

// The ranks' arrays in one process, and the execution of their steps: sums of 32-bit numbers.
struct Ranks {
  std::vector<Array> in, out;
  std::vector<IpcArrays> arrays;

  Ranks(std::vector<Array> inputs, std::vector<Array> outputs)
      : in(std::move(inputs)),
        out(std::move(outputs)) {
    for (std::size_t r = 0; r < in.size(); ++r) {
      arrays.push_back(
          {reinterpret_cast<const std::byte*>(in[r].data()), reinterpret_cast<std::byte*>(out[r].data())});
    }
  }
  void in_place() {
    for (std::size_t r = 0; r < in.size(); ++r) arrays[r].out = const_cast<std::byte*>(arrays[r].in);
  }
  static uint32_t at(const std::byte* array, std::size_t i) {
    uint32_t value;
    std::memcpy(&value, array + i * sizeof value, sizeof value);
    return value;
  }
  static void make(const IpcStep& move) {
    for (std::size_t i = 0; i < move.count; ++i) {
      uint32_t value = 0;
      for (const std::byte* const each : move.from) value += at(each, i);
      for (std::byte* const each : move.to) std::memcpy(each + i * sizeof value, &value, sizeof value);
    }
  }
  // Every `share` ranks share a GPU.
  void move(Request request, bool backwards, Rank share) {
    std::vector<Rank> workers;
    for (Rank rank = 0; rank < static_cast<Rank>(in.size()); ++rank) workers.push_back(rank / share * share);
    for (std::size_t i = 0; i < in.size(); ++i) {
      const Rank rank = static_cast<Rank>(backwards ? in.size() - 1 - i : i);
      const std::size_t r = static_cast<std::size_t>(rank);
      request.in = {arrays[r].in, in[r].size(), DType::kU32};
      request.out = {arrays[r].out, out[r].size(), DType::kU32};
      const std::vector<IpcStep> steps = ipc_steps(request, rank, workers, arrays);
      if (workers[r] != rank) {
        EXPECT_TRUE(steps.empty());
      }
      for (const IpcStep& each : steps) make(each);
    }
  }
};

Array numbers(Rank rank, std::size_t count) {
  Array made(count);
  std::iota(made.begin(), made.end(), static_cast<uint32_t>(1000 * (rank + 1)));
  return made;
}
Array sum_of(Contributors ranks, std::size_t count) {
  Array sum(count);
  for (Rank r = ranks.from; r < ranks.to; ++r) {
    const Array term = numbers(r, count);
    for (std::size_t i = 0; i < count; ++i) sum[i] += term[i];
  }
  return sum;
}

struct Case {
  Rank size;
  std::size_t count;
  bool backwards;
  Rank share;
};
std::vector<Case> cases() {
  std::vector<Case> made;
  for (const Rank size : {1, 2, 3, 4, 5, 8}) {
    for (const std::size_t count : {0, 1, 63, 64, 65, 1000}) {
      for (const bool backwards : {false, true}) {
        for (const Rank share : {1, 2, 8}) made.push_back({size, count, backwards, share});
      }
    }
  }
  return made;
}

class IpcSteps : public ::testing::Test {
 protected:
  // Runs `body` in each of the cases.
  template <class Body>
  void in_every_case(Body&& body) {
    for (const Case& each : cases()) {
      SCOPED_TRACE(std::to_string(each.size) + " ranks, " + std::to_string(each.count) + " elements" +
                   (each.backwards ? ", backwards, " : ", ") + std::to_string(each.share) + " on a GPU");
      case_ = each;
      body();
    }
  }
  Rank size() const { return case_.size; }
  std::size_t count() const { return case_.count; }
  Ranks whole() const {
    std::vector<Array> in;
    for (Rank r = 0; r < size(); ++r) in.push_back(numbers(r, count()));
    return {in, std::vector<Array>(static_cast<std::size_t>(size()), Array(count()))};
  }
  Request request(Collective collective) const {
    Request made;
    made.collective = collective;
    made.root = size() - 1;
    return made;
  }
  Case case_{};
};
TEST_F(IpcSteps, allreduce_gives_all_the_sum) {
  in_every_case([&] {
    Ranks ranks = whole(), in_place = whole();
    in_place.in_place();
    ranks.move(request(Collective::kAllreduce), case_.backwards, case_.share);
    in_place.move(request(Collective::kAllreduce), case_.backwards, case_.share);
    for (std::size_t r = 0; r < ranks.in.size(); ++r) {
      EXPECT_EQ(ranks.out[r], sum_of({0, size()}, count()));
      EXPECT_EQ(ranks.in[r], numbers(static_cast<Rank>(r), count()));
      EXPECT_EQ(in_place.in[r], sum_of({0, size()}, count()));
    }
  });
}

TEST_F(IpcSteps, reduce_writes_the_root_alone) {
  in_every_case([&] {
    Ranks ranks = whole();
    ranks.move(request(Collective::kReduce), case_.backwards, case_.share);
    for (std::size_t r = 0; r < ranks.in.size(); ++r)
      EXPECT_EQ(ranks.out[r], r + 1 == ranks.in.size() ? sum_of({0, size()}, count()) : Array(count()));
  });
}

TEST_F(IpcSteps, scans_are_right_in_place_too) {
  in_every_case([&] {
    for (int c = 0; c < kCollectiveCount; ++c) {
      const Collective each = static_cast<Collective>(c);
      if (!is_scan(each)) continue;
      Ranks ranks = whole(), in_place = whole();
      in_place.in_place();
      ranks.move(request(each), case_.backwards, case_.share);
      in_place.move(request(each), case_.backwards, case_.share);
      for (Rank r = 0; r < size(); ++r) {
        const Shape shape{each, r, size()};
        const Array sum = sum_of(contributors(shape, 1, 0), count());
        const std::size_t at = static_cast<std::size_t>(r);
        EXPECT_EQ(ranks.out[at], sum);
        EXPECT_EQ(in_place.in[at], has_output(shape) ? sum : numbers(r, count()));
      }
    }
  });
}

TEST_F(IpcSteps, broadcast_leaves_an_array_that_is_input_and_output) {
  in_every_case([&] {
    Ranks ranks = whole();
    ranks.arrays.back().out = const_cast<std::byte*>(ranks.arrays.back().in);
    ranks.move(request(Collective::kBroadcast), case_.backwards, case_.share);
    for (std::size_t r = 0; r + 1 < ranks.in.size(); ++r) EXPECT_EQ(ranks.out[r], ranks.in.back());
    EXPECT_EQ(ranks.in.back(), numbers(size() - 1, count()));
  });
}

// Parts of uneven sizes: rank r has count + r.
TEST_F(IpcSteps, parts_arrive_at_their_places) {
  in_every_case([&] {
    std::vector<uint64_t> counts;
    std::vector<Array> parts, wholes;
    for (Rank r = 0; r < size(); ++r) counts.push_back(count() + static_cast<std::size_t>(r));
    const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    Array everything;
    for (Rank r = 0; r < size(); ++r) {
      parts.push_back(numbers(r, counts[static_cast<std::size_t>(r)]));
      everything.insert(everything.end(), parts.back().begin(), parts.back().end());
      wholes.emplace_back(total);
    }
    const auto uneven = [&](Collective collective) {
      Request made = request(collective);
      made.counts = counts;
      return made;
    };
    Ranks gathered(parts, wholes);
    gathered.move(uneven(Collective::kAllgather), case_.backwards, case_.share);
    for (const Array& each : gathered.out) EXPECT_EQ(each, everything);
    Ranks at_root(parts, wholes);
    at_root.move(uneven(Collective::kGather), case_.backwards, case_.share);
    EXPECT_EQ(at_root.out.back(), everything);

    std::vector<Array> empty, many(parts.size(), everything);
    for (const Array& part : parts) empty.emplace_back(part.size());
    Ranks scattered(many, empty);
    scattered.move(uneven(Collective::kScatter), case_.backwards, case_.share);
    EXPECT_EQ(scattered.out, parts);
    Ranks reduced(many, empty);
    reduced.move(uneven(Collective::kReduceScatter), case_.backwards, case_.share);
    for (std::size_t r = 0; r < parts.size(); ++r) {
      for (std::size_t i = 0; i < parts[r].size(); ++i)
        EXPECT_EQ(reduced.out[r][i], parts[r][i] * static_cast<uint32_t>(size()));
    }
  });
}

// Rank a sends count + a + 2b elements to rank b.
TEST_F(IpcSteps, alltoall_brings_every_rank_its_parts_from_all_ranks) {
  in_every_case([&] {
    const auto number = [&](std::size_t a, std::size_t b) { return uint64_t{count() + a + 2 * b}; };
    const std::size_t n = static_cast<std::size_t>(size());
    std::vector<std::vector<uint64_t>> sent(n), received(n);
    std::vector<Array> in(n), out(n), wanted(n);
    for (std::size_t a = 0; a < n; ++a) {
      for (std::size_t b = 0; b < n; ++b) {
        sent[a].push_back(number(a, b));
        received[b].push_back(number(a, b));
        in[a].insert(in[a].end(), number(a, b), static_cast<uint32_t>(10 * a + b));
        wanted[b].insert(wanted[b].end(), number(a, b), static_cast<uint32_t>(10 * a + b));
      }
    }
    for (std::size_t b = 0; b < n; ++b) out[b].resize(wanted[b].size());
    Ranks ranks(in, out);
    for (std::size_t r = 0; r < n; ++r)
      ranks.arrays[r].counts = sent[r], ranks.arrays[r].recv_counts = received[r];
    ranks.move(request(Collective::kAlltoall), case_.backwards, case_.share);
    EXPECT_EQ(ranks.out, wanted);
  });
}

}  // namespace
}  // namespace pc
