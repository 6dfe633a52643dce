// A rank publishes exactly what each peer expects, for every collective, size and number of ranks.
#include "engine/shm/traffic.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace pc::shm {
namespace {

constexpr std::size_t kLargest = 1 << 20;

Limits limits_of(Rank size, std::size_t ring) {
  Limits limits = usual_limits(static_cast<std::size_t>(size));
  limits.ring = ring;
  return limits;
}

// The arrays of one rank: `count` elements of 4 bytes, in each part if there are parts.
struct Side {
  Request request;
  Launch launch;
  std::vector<uint64_t> counts, recv_counts;
};

struct Case {
  Collective collective;
  Rank size;
  std::size_t count;
  bool uneven;
  Rank root;
  std::string text() const {
    return std::string(name_of(collective)) + " of " + std::to_string(count) + ", " + std::to_string(size) +
           " ranks, root " + std::to_string(root) + (uneven ? ", uneven" : "");
  }
};

uint64_t part_of(const Case& c, Rank from, Rank to) {
  const uint64_t copy_pieces = static_cast<uint64_t>(from + 2 * to) % 3;
  return c.uneven ? c.count * copy_pieces : c.count;
}

void fill(Side& side, const Case& c, Rank rank) {
  const std::size_t ranks = static_cast<std::size_t>(c.size);
  side.launch.rank = rank;
  side.launch.size = c.size;
  side.request.collective = c.collective;
  side.request.root = c.root;
  std::size_t in = c.count, out = c.count;
  if (c.collective == Collective::kAlltoall) {
    in = out = 0;
    for (Rank r = 0; r < c.size; ++r) {
      side.counts.push_back(part_of(c, rank, r));
      side.recv_counts.push_back(part_of(c, r, rank));
      in += side.counts.back();
      out += side.recv_counts.back();
    }
  } else if (has_parts(c.collective)) {
    std::size_t whole = 0;
    for (Rank r = 0; r < c.size; ++r) {
      side.counts.push_back(part_of(c, 0, r));
      whole += side.counts.back();
    }
    const std::size_t part = side.counts[static_cast<std::size_t>(rank)];
    const bool gathers = c.collective == Collective::kAllgather || c.collective == Collective::kGather;
    in = gathers ? part : whole;
    out = gathers ? whole : part;
  }
  if (!c.uneven && has_parts(c.collective)) {
    side.counts.clear();
    side.recv_counts.clear();
    const bool gathers = c.collective == Collective::kAllgather || c.collective == Collective::kGather;
    const bool all = c.collective == Collective::kAlltoall;
    in = all || !gathers ? c.count * ranks : c.count;
    out = all || gathers ? c.count * ranks : c.count;
  }
  side.request.in = ConstBuffer(nullptr, in, DType::kF32);
  side.request.out = Buffer{nullptr, out, DType::kF32};
  side.request.counts = side.counts;
  side.request.recv_counts = side.recv_counts;
}

void expect_match(const Case& c, const Limits& limits) {
  std::vector<Side> sides(static_cast<std::size_t>(c.size));
  std::vector<Traffic> traffic(sides.size());
  for (Rank r = 0; r < c.size; ++r) {
    const std::size_t i = static_cast<std::size_t>(r);
    fill(sides[i], c, r);
    traffic[i].bind(sides[i].request, sides[i].launch, limits);
    ASSERT_EQ(traffic[i].in_rounds(), traffic[0].in_rounds()) << c.text();
    ASSERT_EQ(traffic[i].chunk_nbytes(), traffic[0].chunk_nbytes()) << c.text();
    ASSERT_GE(traffic[i].chunk_nbytes(), 128U) << c.text();
    const bool is_message = !traffic[i].in_rounds() && traffic[i].writes();
    ASSERT_LE(is_message ? traffic[i].message_nbytes() : 0, limits.largest_message()) << c.text();
  }
  for (Rank reader = 0; reader < c.size; ++reader) {
    const Traffic& reads = traffic[static_cast<std::size_t>(reader)];
    for (Rank writer = 0; writer < c.size; ++writer) {
      if (!reads.reads_from(writer)) continue;
      const Traffic& writes = traffic[static_cast<std::size_t>(writer)];
      ASSERT_TRUE(writes.writes() || !moves_data(c.collective)) << c.text();
      const std::size_t expected =
          reads.passes_results_on() ? reads.piece(reader).nbytes : reads.incoming(writer).nbytes;
      EXPECT_EQ(writes.outgoing(reader).nbytes, expected) << c.text() << ": " << writer << " to " << reader;
      if (writes.in_rounds()) continue;
      EXPECT_LE(writes.place_in_message(writer, reader) + expected, writes.message_nbytes()) << c.text();
    }
  }
}

TEST(Traffic, what_one_puts_there_is_what_the_other_expects) {
  for (int collective = 0; collective < kCollectiveCount; ++collective) {
    for (const Rank size : {2, 3, 4, 5, 8, 17}) {
      for (const std::size_t count : {0UL, 1UL, 13UL, 14UL, 15UL, 1000UL, 20'000UL, 3'000'001UL}) {
        const Collective kind = static_cast<Collective>(collective);
        const Limits limits = limits_of(size, 4 * kLargest);
        for (const Rank root : {0, size - 1}) {
          expect_match({kind, size, count, false, root}, limits);
          if (has_parts(kind)) expect_match({kind, size, count, true, root}, limits);
        }
      }
    }
  }
}

TEST(Traffic, rounds_move_something_however_many_ranks_there_are) {
  for (const Rank size : {2, 100, 160, 3000, 4096}) {
    for (const Collective kind : {Collective::kAllreduce, Collective::kAlltoall, Collective::kBroadcast}) {
      Side side;
      side.request.collective = kind;
      side.request.in = ConstBuffer(nullptr, static_cast<std::size_t>(size) * 100'001, DType::kF32);
      side.request.out = Buffer{nullptr, static_cast<std::size_t>(size) * 100'001, DType::kF32};
      side.launch.size = size;
      Traffic traffic;
      traffic.bind(side.request, side.launch, limits_of(size, 1024UL * 1024));
      ASSERT_TRUE(traffic.in_rounds());
      EXPECT_GE(traffic.chunk_nbytes(), 128U);
    }
  }
}

// With every limit at its minimum, and with every limit at its maximum.
TEST(Traffic, what_one_puts_there_is_what_the_other_expects_at_the_ends_of_all_limits) {
  for (const bool least : {true, false}) {
    Limits limits = {};
    for (const LimitRow& row : limit_table()) {
      ASSERT_TRUE(set_limit(limits, row.name, least ? row.least : row.most).is_ok()) << row.name;
    }
    ASSERT_TRUE(check(limits).is_ok());
    for (int collective = 0; collective < kCollectiveCount; ++collective) {
      for (const Rank size : {2, 3, 8, 160}) {
        for (const std::size_t count : {0UL, 1UL, 15UL, 1000UL, 20'000UL, 3'000'001UL}) {
          const Case c{static_cast<Collective>(collective), size, count, false, size - 1};
          expect_match(c, limits);
          if (has_parts(c.collective)) expect_match({c.collective, size, count, true, 0}, limits);
        }
      }
    }
  }
}

// In an allreduce in rounds the pieces of all ranks cover the array.
TEST(Traffic, pieces_make_the_whole) {
  for (const Rank size : {2, 3, 4, 5, 8, 17}) {
    Side side;
    fill(side, {Collective::kAllreduce, size, 1'000'003, false, 0}, 1);
    Traffic traffic;
    traffic.bind(side.request, side.launch, limits_of(size, 4 * kLargest));
    ASSERT_TRUE(traffic.passes_results_on());
    std::size_t end = 0;
    for (Rank owner = 0; owner < size; ++owner) {
      EXPECT_EQ(traffic.piece(owner).begin, end);
      end += traffic.piece(owner).nbytes;
    }
    EXPECT_EQ(end, side.request.in.nbytes());
  }
}

// A slice is the same bytes on every domain, and so is a round: the pieces that their owners
// exchange match.
TEST(Traffic, domains_of_different_sizes_cut_an_array_alike) {
  for (const Collective collective : {Collective::kAllreduce, Collective::kReduce, Collective::kBroadcast}) {
    for (const std::size_t count : {1UL, 31UL, 5'000UL, 3'000'001UL}) {
      const Division division{3, 5, 1};
      Traffic first;
      for (const Rank size : {5, 3, 4}) {
        Side side;
        fill(side, {collective, size, count, false, 0}, 0);
        Traffic traffic;
        traffic.bind(side.request, side.launch, limits_of(5, kLargest), division);
        ASSERT_TRUE(traffic.in_rounds());
        if (size == 5) first = traffic;
        EXPECT_EQ(traffic.chunk_nbytes(), first.chunk_nbytes());
        for (Rank owner = 0; owner < size && collective != Collective::kBroadcast; ++owner) {
          EXPECT_EQ(traffic.piece(owner).begin, first.piece(owner).begin);
          EXPECT_EQ(traffic.piece(owner).nbytes, owner < 3 ? first.piece(owner).nbytes : 0U);
        }
      }
    }
  }
}

TEST(Traffic, a_call_with_a_leader_is_one_exchange_whatever_the_limits_say) {
  for (const std::size_t count : {0UL, 1UL, 2'000UL}) {
    Side side;
    fill(side, {Collective::kAllreduce, 3, count, false, 0}, 1);
    Traffic traffic;
    traffic.bind(side.request, side.launch, limits_of(3, 64), {.leader = 0});
    EXPECT_FALSE(traffic.in_rounds());
    EXPECT_EQ(traffic.message_nbytes(), traffic.nbytes());
    EXPECT_EQ(traffic.incoming(0).nbytes, traffic.nbytes());
  }
}

TEST(Traffic, a_round_has_a_whole_piece_of_every_part) {
  for (const uint32_t parts : {2U, 3U, 7U}) {
    for (const Collective collective : {Collective::kAllgather, Collective::kReduceScatter}) {
      Side side;
      fill(side, {collective, 4, 1'000'000UL * parts, false, 0}, 0);
      Traffic traffic;
      traffic.bind(side.request, side.launch, limits_of(4, kLargest), {1, 4, parts});
      EXPECT_EQ(traffic.chunk_nbytes() % (parts * 128), 0U);
    }
  }
}

}  // namespace
}  // namespace pc::shm
