// One row of arrays in the host's memory, measured by worlds of threads.
#include "bench/measure.h"

#include <gtest/gtest.h>

#include <mutex>

#include "bench/effort.h"
#include "bench/host_device.h"
#include "bench/patterns.h"
#include "world.h"

namespace pc::bench {
namespace {

using testing::run_world;

// Returns the row of every rank.
std::vector<Row> rows_of(Rank size, const Case& what, uint64_t nbytes, const Effort& effort,
                         bool one_clock = true) {
  std::vector<Row> rows(static_cast<std::size_t>(size));
  const testing::Outcomes outcomes = run_world({.size = size}, [&](Runtime&, Communicator& group) -> Status {
    const std::unique_ptr<MeasuredDevice> device = host_device(group, one_clock);
    PC_ASSIGN_OR_RETURN(rows[static_cast<std::size_t>(group.rank())], measure(*device, what, nbytes, effort));
    return Status::ok();
  });
  EXPECT_TRUE(testing::all_ok(outcomes)) << testing::text_of(outcomes);
  return rows;
}

TEST(BenchMeasure, every_operation_is_right_with_every_root_and_size_of_world) {
  for (const Operation& operation : operations()) {
    for (const Rank size : {1, 2, 3, 4}) {
      for (const std::optional<Rank> root : {std::optional<Rank>(), std::optional<Rank>(size - 1)}) {
        for (const bool in_place : {true, false}) {
          if (in_place && !operation.in_place()) continue;
          const Case what = {&operation, DType::kF32, ReduceOp::kSum, root, in_place, !in_place};
          const uint64_t parts = static_cast<uint64_t>(operation.parts(size).most());
          for (const Row& row : rows_of(size, what, 10'000, kLittle)) {
            EXPECT_EQ(row.half().wrong, 0u)
                << operation.name << " of " << size << (in_place ? ", in place" : "");
            EXPECT_EQ(row.count, operation.moves_data() ? 2500u / parts : 0u);
            EXPECT_EQ(row.nbytes, 4 * row.count * parts);
            EXPECT_EQ(row.iterations, 7u);
          }
        }
      }
    }
  }
}

TEST(BenchMeasure, with_a_common_clock_and_without_all_ranks_report_the_same_times) {
  const Case what = {find_operation("allreduce"), DType::kF32, ReduceOp::kSum, {}};
  for (const bool one_clock : {true, false}) {
    const std::vector<Row> rows = rows_of(3, what, 64, {.warm_up = 0, .iterations = 50}, one_clock);
    for (const Row& row : rows) {
      EXPECT_GT(row.half().time.done.p50_s, 0);
      EXPECT_LE(row.half().time.done.p50_s, row.half().time.done.p99_s);
      EXPECT_GT(row.half().time.done.mean_s, 0);
      EXPECT_EQ(row.half().time.done.mean_s, rows[0].half().time.done.mean_s);
      EXPECT_EQ(row.half().time.done.p50_s, rows[0].half().time.done.p50_s);
      EXPECT_EQ(row.half().time.done.p99_s, rows[0].half().time.done.p99_s);
      EXPECT_DOUBLE_EQ(row.half().algbw, 64 / row.half().time.done.mean_s / 1e9);
      EXPECT_DOUBLE_EQ(row.half().busbw, row.half().algbw * 4 / 3);
    }
  }
}

TEST(BenchMeasure, an_operation_that_does_nothing_is_wrong_in_every_element) {
  Operation idle = *find_operation("broadcast");
  idle.run = [](Communicator&, const Asked&, const Arrays&) { return Status::ok(); };
  const Case what = {&idle, DType::kF64, ReduceOp::kSum, 0};
  for (const Row& row :
       // The result of rank 1 is wrong: it lacks the root's data. A few elements are equal by
       // chance.
       rows_of(2, what, 8000, kLittle)) {
    ASSERT_TRUE(row.half().wrong.has_value());
    EXPECT_GT(*row.half().wrong, 900u);
    EXPECT_LE(*row.half().wrong, 1000u);
  }
}

TEST(BenchMeasure, one_wrong_element_on_one_rank_is_seen_by_all) {
  Operation careless = *find_operation("allreduce");
  careless.run = [](Communicator& group, const Asked& asked, const Arrays& arrays) {
    PC_TRY(find_operation("allreduce")->run(group, asked, arrays));
    if (group.rank() == 1) arrays.out.data[arrays.out.nbytes() - 1] ^= std::byte{1};
    return Status::ok();
  };
  for (const bool in_place : {true, false}) {
    const Case what = {&careless, DType::kF32, ReduceOp::kSum, {}, in_place, !in_place};
    for (const Row& row : rows_of(2, what, 8000, kLittle)) EXPECT_EQ(row.half().wrong, 1u);
  }
}

TEST(BenchMeasure, without_a_check_nothing_is_reported_about_the_result) {
  const Case what = {find_operation("allreduce"), DType::kF32, ReduceOp::kSum, {}};
  for (const Row& row : rows_of(2, what, 64, {.warm_up = 0, .iterations = 2, .checks = false}))
    EXPECT_EQ(row.half().wrong, std::nullopt);
}

TEST(BenchMeasure, at_least_one_element_is_moved) {
  const Case what = {find_operation("broadcast"), DType::kC128, ReduceOp::kSum, {}};
  for (const Row& row : rows_of(2, what, 1, kLittle)) EXPECT_EQ(row.count, 1u);
  const Case parts = {find_operation("alltoall"), DType::kF32, ReduceOp::kSum, {}, false, true};
  for (const Row& row : rows_of(3, parts, 1, kLittle)) {
    EXPECT_EQ(row.count, 1u);
    EXPECT_EQ(row.nbytes, 12u);
  }
}

}  // namespace
}  // namespace pc::bench
