// How a row of the benchmark on GPUs is printed: as nccl-tests prints its own.
#include "bench/gpu_output.h"

#include <gtest/gtest.h>

namespace pc::bench {
namespace {

GpuRow row() {
  GpuRow row;
  row.what = {find_operation("allreduce"), DType::kF32, ReduceOp::kSum, {}};
  row.nbytes = 33554432;
  row.count = 8388608;
  row.iterations = 20;
  GpuHalf half;
  half.time = {3.5e-6, 123.456e-6};
  half.algbw = 271.793;
  half.busbw = 271.793;
  half.wrong = 0;
  row.out_of_place = half;
  half.time = {3.5e-6, 98.7654e-6};
  half.wrong.reset();
  row.in_place = half;
  return row;
}

TEST(BenchGpuOutput, a_line_has_the_columns_and_widths_of_nccl_tests) {
  EXPECT_EQ(gpu_table_line(row(), false),
            "    33554432       8388608   float32     sum      -1"
            "    123.5  271.79  271.79       0    98.77  271.79  271.79     N/A");
}

TEST(BenchGpuOutput, long_times_lose_digits_and_what_was_not_measured_is_said) {
  GpuRow slow = row();
  slow.out_of_place.reset();
  slow.in_place->time.until_done_s = 0.0123456;
  EXPECT_EQ(gpu_table_line(slow, false),
            "    33554432       8388608   float32     sum      -1"
            "      N/A     N/A     N/A     N/A    12346  271.79  271.79     N/A");
}

TEST(BenchGpuOutput, the_hosts_time_takes_the_place_of_the_other_if_it_is_asked_for) {
  EXPECT_NE(gpu_table_line(row(), true).find("     3.50  271.79"), std::string::npos);
}

GpuRow compared() {
  GpuRow compared = row();
  compared.in_place.reset();
  GpuHalf& half = *compared.out_of_place;
  half.time = {3.5e-6, 123.456e-6, {124e-6, 123e-6, 900e-6, 122e-6}, 2.5e-6, 4e-6};
  half.raw = PerIteration{2.25e-6, 122.206e-6, {120e-6, 121e-6, 122e-6, 119.5e-6}, 2e-6, 4e-6};
  half.raw_wrong = 0;
  return compared;
}

TEST(BenchGpuOutput, beside_nccls_own_call_all_differences_are_said_and_whether_it_was_right) {
  GpuRow row = compared();
  EXPECT_EQ(raw_line(row),
            "# NCCL's own call: out of place 122.21 us, ours +1.25, median 120.00 us, ours +3.00, "
            "p99 122.00 us, ours +778.00, until queued 2.25 us, ours +1.25, median 2.00 us, ours +0.50, "
            "p99 4.00 us, ours +0.00, #wrong 0");
  row.out_of_place->raw_wrong.reset();
  EXPECT_TRUE(raw_line(row).ends_with(", #wrong N/A"));
}

TEST(BenchGpuOutput, json_of_a_comparison_has_medians_every_turn_and_what_was_wrong) {
  GpuRow row = compared();
  row.out_of_place->time = {0.000003, 0.125, {0.5, 0.125}, 0.5, 4};
  row.out_of_place->raw = PerIteration{0.000002, 0.25, {0.25, 0.75}, 0.25, 2};
  row.out_of_place->raw_wrong = 3;
  EXPECT_NE(
      gpu_json_line(row, {"", "2.28.9", "", 1}, {"nccl", Status::ok()})
          .find("\"host_time\": 3, \"host_p50\": 500000, \"host_p99\": 4000000, \"p50\": 125000, \"p99\": "
                "500000, \"turns\": [500000, 125000], \"raw_time\": 250000, \"raw_host_time\": 2, "
                "\"raw_host_p50\": 250000, \"raw_host_p99\": 2000000, \"raw_p50\": 250000, \"raw_p99\": "
                "750000, \"raw_turns\": [250000, 750000], \"raw_nwrong\": 3}"),
      std::string::npos);
  row.out_of_place->raw_wrong.reset();
  EXPECT_NE(gpu_json_line(row, {"", "2.28.9", "", 1}, {"nccl", Status::ok()}).find("\"raw_nwrong\": null}"),
            std::string::npos);
}

TEST(BenchGpuOutput, the_verdict_says_whose_results_are_wrong) {
  const Options options;
  const auto verdict = [&](uint64_t wrong, uint64_t raw_wrong) {
    GpuOutput output(options, {}, false);
    GpuRow row = compared();
    row.out_of_place->wrong = wrong;
    row.out_of_place->raw_wrong = raw_wrong;
    EXPECT_TRUE(output.add(row, {"nccl", Status::ok()}).is_ok());
    return output.verdict().message();
  };
  EXPECT_EQ(verdict(0, 0), "");
  EXPECT_EQ(verdict(2, 0), "2 elements of the results are wrong");
  EXPECT_EQ(verdict(0, 3), "3 elements of the results of NCCL's own calls are wrong");
  EXPECT_EQ(verdict(2, 3),
            "2 elements of the results are wrong, 3 elements of the results of NCCL's own calls are wrong");
}

TEST(BenchGpuOutput, json_has_the_keys_of_nccl_tests_and_all_digits) {
  GpuRow plain = row();
  plain.in_place.reset();
  plain.out_of_place->time = {0.000003, 0.125, {}, 0.5, 4};
  plain.copy_s = 0.25;
  plain.out_of_place->algbw = plain.out_of_place->busbw = 0.5;
  const GpuScene scene{"NVIDIA \"H100\"", "2.28.9", "", 1};
  EXPECT_EQ(gpu_json_line(plain, scene, {"nccl", Status::ok()}),
            "{\"collective\": \"allreduce\", \"ranks\": 1, \"size\": 33554432, \"count\": 8388608, \"type\": "
            "\"float32\", \"redop\": \"sum\", \"root\": -1, \"out_of_place\": {\"time\": 125000, \"alg_bw\": "
            "0.5, \"bus_bw\": 0.5, \"nwrong\": 0, \"host_time\": 3, \"host_p50\": 500000, \"host_p99\": "
            "4000000}, \"in_place\": null, "
            "\"copy_time\": 250000, \"actual_iterations\": 20, \"device\": \"cuda\", \"gpu\": \"NVIDIA "
            "\\\"H100\\\"\", "
            "\"nccl_version\": \"2.28.9\", \"way\": \"nccl\", \"why_not_nccl\": null}");
  const std::string staged =
      gpu_json_line(plain, {"", "", "", 1}, {"staged", Status(Code::kUnsupported, "none")});
  EXPECT_NE(staged.find("\"nccl_version\": null, \"way\": \"staged\", \"why_not_nccl\": \"none\""),
            std::string::npos);
}

}  // namespace
}  // namespace pc::bench
