// Rows as JSON: the keys are what scripts read.
#include "bench/output.h"

#include <gtest/gtest.h>

#include "bench/rows.h"

namespace pc::bench {
namespace {

std::string host_json_of(const Row& row) {
  RunInfo run_info;
  run_info.ranks = {0, 1, 2, 3};
  return json_line({}, run_info, row, {});
}

std::string gpu_json_of(const Row& row, const Route& route = {"nccl", {}}) {
  RunInfo run_info;
  run_info.ranks = {0};
  run_info.gpu = "NVIDIA \"H100\"";
  if (route.by_nccl.is_ok()) run_info.nccl = "2.28.9";
  return json_line(on_gpus(), run_info, row, route);
}

TEST(BenchJson, a_line_has_every_column) {
  EXPECT_EQ(
      host_json_of(host_row("reduce", {})),
      "{\"collective\": \"reduce\", \"ranks\": 4, \"size\": 1024, \"count\": 512, \"type\": \"bfloat16\", "
      "\"redop\": \"max\", \"root\": \"rotate\", \"time_us\": 12.500, \"algbw\": 0.081920, "
      "\"busbw\": 0.122880, \"wrong\": 3, \"p50_us\": 12.000, \"p99_us\": 40.000, \"iters\": 20, "
      "\"one_clock\": false, \"in_place\": true}");
}

TEST(BenchJson, what_was_not_checked_is_not_called_right) {
  Row unchecked = host_row("allreduce", {});
  unchecked.in_place->wrong.reset();
  EXPECT_NE(host_json_of(unchecked).find("\"wrong\": null"), std::string::npos);
}

TEST(BenchJson, of_a_comparison_it_has_medians_every_round_and_what_was_wrong) {
  Row row = compared_row();
  Half& half = *row.out_of_place;
  half.time = {{0.125, 0.125, 0.5}, {0.000003, 0.5, 4}, {0.5, 0.125}};
  half.raw = Times{{0.25, 0.25, 0.75}, {0.000002, 0.25, 2}, {0.25, 0.75}};
  half.raw_wrong = 3;
  EXPECT_NE(gpu_json_of(row).find(
                "\"host_time\": 3, \"host_p50\": 500000, \"host_p99\": 4000000, \"p50\": 125000, \"p99\": "
                "500000, \"turns\": [500000, 125000], \"raw_time\": 250000, \"raw_host_time\": 2, "
                "\"raw_host_p50\": 250000, \"raw_host_p99\": 2000000, \"raw_p50\": 250000, \"raw_p99\": "
                "750000, \"raw_turns\": [250000, 750000], \"raw_nwrong\": 3}"),
            std::string::npos);
  half.raw_wrong.reset();
  EXPECT_NE(gpu_json_of(row).find("\"raw_nwrong\": null}"), std::string::npos);
}

TEST(BenchJson, on_gpus_it_has_the_keys_of_nccl_tests_and_all_digits) {
  Row plain = gpu_row();
  plain.in_place.reset();
  plain.out_of_place->time = {{0.125}, {0.000003, 0.5, 4}};
  plain.copy_s = 0.25;
  plain.out_of_place->algbw = plain.out_of_place->busbw = 0.5;
  EXPECT_EQ(gpu_json_of(plain),
            "{\"collective\": \"allreduce\", \"ranks\": 1, \"size\": 33554432, \"count\": 8388608, \"type\": "
            "\"float32\", \"redop\": \"sum\", \"root\": -1, \"out_of_place\": {\"time\": 125000, \"alg_bw\": "
            "0.5, \"bus_bw\": 0.5, \"nwrong\": 0, \"host_time\": 3, \"host_p50\": 500000, \"host_p99\": "
            "4000000}, \"in_place\": null, "
            "\"copy_time\": 250000, \"actual_iterations\": 20, \"device\": \"cuda\", \"gpu\": \"NVIDIA "
            "\\\"H100\\\"\", "
            "\"nccl_version\": \"2.28.9\", \"way\": \"nccl\", \"why_not_nccl\": null}");
  const std::string staged = gpu_json_of(plain, {"staged", Status(Code::kUnsupported, "none")});
  EXPECT_NE(staged.find("\"nccl_version\": null, \"way\": \"staged\", \"why_not_nccl\": \"none\""),
            std::string::npos);
}

}  // namespace
}  // namespace pc::bench
