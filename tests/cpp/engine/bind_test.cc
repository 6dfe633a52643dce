#include "engine/bind.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <tuple>

#include "engine/plan/plan_cache.h"

namespace pc {
namespace {

TEST(Geometry, chunks_cover_the_array_once_and_start_at_multiples_of_64_bytes) {
  for (const DType dtype : {DType::kU8, DType::kF16, DType::kF32, DType::kF64, DType::kC128}) {
    const std::size_t width = size_of(dtype);
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{64},
                                    std::size_t{1000}, std::size_t{300'001}}) {
      for (const uint32_t chunks : {1u, 2u, 3u, 8u, 1000u}) {
        Request request;
        request.collective = Collective::kAllreduce;
        request.in = {nullptr, count, dtype};
        const Geometry geometry(request, {Collective::kAllreduce, 0, 2}, chunks);
        std::size_t end = 0;
        for (uint32_t c = 0; c < chunks; ++c) {
          const std::size_t offset = geometry.input(c), nbytes = geometry.nbytes({c, 1});
          EXPECT_EQ(offset, end);
          EXPECT_EQ(offset, geometry.output(c));
          EXPECT_TRUE(offset % 64 == 0 || nbytes == 0);
          EXPECT_EQ(nbytes % width, 0u);
          EXPECT_LE(nbytes, geometry.chunk_nbytes());
          end = offset + nbytes;
        }
        EXPECT_EQ(end, count * width);
        EXPECT_EQ(geometry.nbytes({0, chunks}), count * width);
      }
    }
  }
}

TEST(Geometry, a_collective_without_data_moves_nothing) {
  EXPECT_EQ(Geometry({}, {Collective::kBarrier, 0, 2}, 0).nbytes({}), 0u);
}

// Each part of the array is split into `split` pieces. The offset of every piece is checked.
TEST(Geometry, uneven_parts_lie_one_after_the_other_and_their_pieces_within_them) {
  const std::vector<uint64_t> counts = {5, 0, 1000, 1, 70};
  for (const uint32_t split : {1u, 2u, 7u}) {
    for (Rank rank = 0; rank < 5; ++rank) {
      Request request;
      request.collective = Collective::kReduceScatter;
      request.counts = counts;
      request.in = {nullptr, 1076, DType::kF32};
      const Shape shape{Collective::kReduceScatter, rank, 5, 0, split, false};
      const Geometry geometry(request, shape, 5 * split);
      std::size_t end = 0, part_begin = 0;
      for (uint32_t part = 0; part < 5; ++part) {
        part_begin = end;
        for (uint32_t piece = 0; piece < split; ++piece) {
          const uint32_t name = part * split + piece;
          EXPECT_EQ(geometry.input(name), end);
          if (static_cast<Rank>(part) == rank) {
            EXPECT_EQ(geometry.output(name), end - part_begin);
          }
          EXPECT_LE(geometry.nbytes({name, 1}), geometry.chunk_nbytes());
          end += geometry.nbytes({name, 1});
        }
        EXPECT_EQ(end - part_begin, counts[part] * 4);
      }
    }
  }
}

TEST(Geometry, an_alltoall_has_its_own_sizes_in_each_direction) {
  const std::vector<uint64_t> to = {1, 2, 3}, from = {4, 2, 0};
  Request request;
  request.collective = Collective::kAlltoall;
  request.counts = to;
  request.recv_counts = from;
  request.in = {nullptr, 6, DType::kU16};
  const Geometry geometry(request, {Collective::kAlltoall, 1, 3, 0, 1, false}, 9);
  EXPECT_EQ(geometry.input(3 + 2), 6u);  // 1 -> 2 is stored after 1 + 2 elements
  EXPECT_EQ(geometry.nbytes({3 + 2, 1}), 6u);
  EXPECT_EQ(geometry.output(0 + 1), 0u);  // 0 -> 1
  EXPECT_EQ(geometry.nbytes({0 + 1, 1}), 8u);
  EXPECT_EQ(geometry.output(6 + 1), 12u);  // 2 -> 1
  EXPECT_EQ(geometry.nbytes({6 + 1, 1}), 0u);
}

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
    const uint32_t split = algorithm.pipelines == Pipelines::kNot ? 1 : 3;
    for (Rank size = 1; size <= 9; ++size) {
      if (!algorithm.supports({algorithm.collective, 0, size, size / 2, split})) continue;
      std::map<std::tuple<Rank, Rank, uint32_t, uint32_t>, End> sent;
      std::size_t received = 0;
      for (const bool sends : {true, false}) {
        for (Rank rank = 0; rank < size; ++rank) {
          const Result<CompiledPlan> compiled =
              compile(algorithm.build({algorithm.collective, rank, size, size / 2, split}));
          ASSERT_TRUE(compiled.is_ok()) << compiled.status().to_string();
          const Plan& plan = compiled.value().plan;
          Request request;
          request.collective = algorithm.collective;
          request.in = request.out = {nullptr, 1000 * static_cast<std::size_t>(size), DType::kF16};
          const Geometry geometry(request, plan.shape, plan.chunks);
          for (std::size_t i = 0; i < plan.steps.size(); ++i) {
            const Step& s = plan.steps[i];
            if (s.kind == StepKind::kReduce || s.kind == StepKind::kCopy ||
                (s.kind == StepKind::kSend) != sends)
              continue;
            const std::size_t nbytes = geometry.nbytes(moved_chunks(s));
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
