// How a row is printed.
#include "bench/output.h"

#include <gtest/gtest.h>

#include <iterator>
#include <sstream>

namespace pc::bench {
namespace {

Row row(const char* operation, std::optional<Rank> root) {
  Row row;
  row.what = {find_operation(operation), DType::kBF16, ReduceOp::kMax, root};
  row.nbytes = 1024;
  row.count = 512;
  row.iterations = 20;
  row.time = {12.5e-6, 12e-6, 40e-6};
  row.algbw = 0.08192;
  row.busbw = 0.12288;
  row.wrong = 3;
  return row;
}

std::vector<std::string> words(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}
using Words = std::vector<std::string>;

TEST(BenchOutput, columns_come_in_the_order_of_nccl_tests) {
  EXPECT_EQ(words(table_line(row("allreduce", 1))), (Words{"1024", "512", "bfloat16", "max", "-1", "12.50",
                                                           "0.082", "0.123", "3", "12.00", "40.00"}));
  EXPECT_EQ(words(table_line(row("broadcast", 1)))[3], "none");
  EXPECT_EQ(words(table_line(row("broadcast", 1)))[4], "1");
  EXPECT_EQ(words(table_line(row("reduce", {})))[4], "rotate");
}

TEST(BenchOutput, what_was_not_checked_is_not_called_right) {
  Row unchecked = row("allreduce", {});
  unchecked.wrong.reset();
  EXPECT_EQ(words(table_line(unchecked))[8], "N/A");
  EXPECT_NE(json_line(unchecked, 2, true).find("\"wrong\": null"), std::string::npos);
}

TEST(BenchOutput, a_line_of_json_has_every_column) {
  EXPECT_EQ(
      json_line(row("reduce", {}), 4, false),
      "{\"collective\": \"reduce\", \"ranks\": 4, \"size\": 1024, \"count\": 512, \"type\": \"bfloat16\", "
      "\"redop\": \"max\", \"root\": \"rotate\", \"time_us\": 12.500, \"algbw\": 0.081920, "
      "\"busbw\": 0.122880, \"wrong\": 3, \"p50_us\": 12.000, \"p99_us\": 40.000, \"iters\": 20, "
      "\"one_clock\": false, \"in_place\": true}");
}

TEST(BenchOutput, a_ceiling_without_bytes_has_no_rate) {
  const Ceiling copy = {"memcpy", 2000, 20, {2e-6, 1e-6, 4e-6}}, wake = {"futex", 0, 20, {2e-6, 1e-6, 4e-6}};
  EXPECT_EQ(words(table_line(copy)), (Words{"memcpy", "2000", "1.000", "4.000", "2.000"}));
  EXPECT_EQ(words(table_line(wake)), (Words{"futex", "-", "1.000", "4.000", "-"}));
  EXPECT_EQ(
      json_line(copy),
      "{\"ceiling\": \"memcpy\", \"size\": 2000, \"p50_us\": 1.0000, \"p99_us\": 4.0000, \"iters\": 20}");
}

}  // namespace
}  // namespace pc::bench
