#include "engine/bind.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <tuple>

#include "engine/plan_cache.h"

namespace pc {
namespace {

TEST(Geometry, chunks_cover_the_array_once_and_start_at_multiples_of_64_bytes) {
  for (const std::size_t width : {1, 2, 4, 8, 16}) {
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{64},
                                    std::size_t{1000}, std::size_t{300'001}}) {
      for (const uint32_t chunks : {1u, 2u, 3u, 8u, 1000u}) {
        const Geometry geometry(count, width, chunks);
        std::size_t end = 0;
        for (uint32_t c = 0; c < chunks; ++c) {
          const ByteRange range = geometry.of({c, 1});
          EXPECT_EQ(range.offset, end);
          EXPECT_TRUE(range.offset % 64 == 0 || range.nbytes == 0);
          EXPECT_EQ(range.nbytes % width, 0u);
          EXPECT_LE(range.nbytes, geometry.chunk_nbytes());
          end = range.offset + range.nbytes;
        }
        EXPECT_EQ(end, count * width);
        EXPECT_EQ(geometry.of({0, chunks}).nbytes, count * width);
      }
    }
  }
}

TEST(Geometry, a_collective_without_data_moves_nothing) { EXPECT_EQ(Geometry(100, 4, 0).of({}).nbytes, 0u); }

TEST(Scratch, grows_stays_and_is_aligned) {
  Scratch scratch;
  std::byte* const small = scratch.reserve(100);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(small) % 64, 0u);
  EXPECT_EQ(scratch.reserve(10), small);
  std::byte* const large = scratch.reserve(100'000);
  large[99'999] = std::byte{1};
  EXPECT_EQ(reinterpret_cast<uintptr_t>(large) % 64, 0u);
  EXPECT_EQ(scratch.reserve(100), large);
}

TEST(PlanCache, gives_the_same_plan_again_and_stays_bounded) {
  PlanCache cache(4);
  const Algorithm& ring = *find_algorithm(Collective::kAllreduce, "ring");
  const Shape first{Collective::kAllreduce, 0, 2, 0, 1};
  const auto plan = cache.get(ring, first).value();
  EXPECT_EQ(cache.get(ring, first).value(), plan);
  for (Rank size = 3; size < 20; ++size) {
    ASSERT_TRUE(cache.get(ring, {Collective::kAllreduce, 1, size, 0, 1}).is_ok());
    EXPECT_EQ(cache.get(ring, first).value(), plan) << "used a moment ago, so another one goes";
  }
  EXPECT_EQ(cache.size(), 4u);
}

TEST(CompiledPlan, every_catalogued_plan_compiles_and_both_ends_of_a_message_agree_on_number_and_size) {
  struct End {
    std::size_t nbytes = 0;
    bool seen = false;
  };
  for (const Algorithm& algorithm : algorithms()) {
    for (Rank size = 1; size <= 9; ++size) {
      std::map<std::tuple<Rank, Rank, uint32_t, uint32_t>, End> sent;
      std::size_t received = 0;
      for (const bool sends : {true, false}) {
        for (Rank rank = 0; rank < size; ++rank) {
          const Result<CompiledPlan> compiled =
              compile(algorithm.build({algorithm.collective, rank, size, size / 2, 3}));
          ASSERT_TRUE(compiled.is_ok()) << compiled.status().to_string();
          const Plan& plan = compiled.value().plan;
          const Geometry geometry(1001, 2, plan.chunks);
          for (std::size_t i = 0; i < plan.steps.size(); ++i) {
            const Step& s = plan.steps[i];
            if (s.kind == StepKind::kReduce || s.kind == StepKind::kCopy ||
                (s.kind == StepKind::kSend) != sends)
              continue;
            const std::size_t nbytes = geometry.of(moved_chunks(s)).nbytes;
            const uint32_t index = compiled.value().message_index[i];
            if (sends) {
              sent[{rank, s.peer, s.lane, index}] = {nbytes, true};
              continue;
            }
            const End& other = sent[{s.peer, rank, s.lane, index}];
            EXPECT_TRUE(other.seen && other.nbytes == nbytes)
                << algorithm.name << " " << size << " ranks, rank " << rank << ", step " << i;
            ++received;
          }
        }
      }
      EXPECT_EQ(received, sent.size());
    }
  }
}

TEST(CompiledPlan, plans_that_would_leave_their_arrays_are_refused) {
  Plan good;
  good.algorithm = "test";
  good.shape = {Collective::kAllreduce, 0, 2, 0, 1};
  good.chunks = 2;
  good.scratch_chunks = 1;
  good.steps = {
      {.kind = StepKind::kRecv, .dst_area = Area::kScratch, .peer = 1, .src = {1, 1}, .dst = {0, 1}},
      {.kind = StepKind::kReduce, .src_area = Area::kScratch, .src = {0, 1}, .dst = {1, 1}}};
  ASSERT_TRUE(compile(good).is_ok());
  const auto refused = [&](auto edit) {
    Plan bad = good;
    edit(bad.steps[0], bad.steps[1]);
    return compile(bad).status().code() == Code::kInternal;
  };
  EXPECT_TRUE(refused([](Step& recv, Step&) { recv.dst.first = 1; }));
  EXPECT_TRUE(refused([](Step& recv, Step&) { recv.src.first = 2; }));
  EXPECT_TRUE(refused([](Step& recv, Step&) { recv.src.count = 0; }));
  EXPECT_TRUE(refused([](Step& recv, Step&) { recv.dst_area = Area::kInput; }));
  EXPECT_TRUE(refused([](Step& recv, Step&) { recv.peer = 2; }));
  EXPECT_TRUE(refused([](Step& recv, Step&) { recv.peer = 0; }));
  EXPECT_TRUE(refused([](Step& recv, Step&) { recv.lane = 1; }));
  EXPECT_TRUE(refused([](Step& recv, Step&) { recv.after = 3; }));
  EXPECT_TRUE(refused([](Step& recv, Step&) { recv.after = 1; }));
  EXPECT_TRUE(refused([](Step&, Step& reduce) { reduce.dst.first = 2; }));
  EXPECT_TRUE(refused([](Step&, Step& reduce) { reduce.src_area = Area::kOutput; }));
}

}  // namespace
}  // namespace pc
