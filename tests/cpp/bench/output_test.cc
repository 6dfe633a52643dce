// The figures computed from a measurement, and the roofline.
#include "bench/output.h"

#include <gtest/gtest.h>

#include <iterator>
#include <sstream>

#include "bench/rows.h"

namespace pc::bench {
namespace {

std::string check_results(uint64_t wrong, uint64_t raw_wrong) {
  const Options options = on_gpus();
  Output output(options, {}, false);
  Row row = compared_row();
  row.out_of_place->wrong = wrong;
  row.out_of_place->raw_wrong = raw_wrong;
  EXPECT_TRUE(output.add(row, {"nccl", Status::ok()}).is_ok());
  return output.check_results().message();
}

TEST(BenchOutput, the_check_says_which_results_are_wrong) {
  EXPECT_EQ(check_results(0, 0), "");
  EXPECT_EQ(check_results(2, 0), "2 elements of the results are wrong");
  EXPECT_EQ(check_results(0, 3), "3 elements of the results of NCCL's own calls are wrong");
  EXPECT_EQ(check_results(2, 3),
            "2 elements of the results are wrong, 3 elements of the results of NCCL's own calls are wrong");
}

std::vector<std::string> words(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}

TEST(BenchOutput, a_roofline_without_bytes_has_no_rate) {
  const Roofline copy = {"memcpy", 2000, 20, {2e-6, 1e-6, 4e-6}}, wake = {"futex", 0, 20, {2e-6, 1e-6, 4e-6}};
  using Words = std::vector<std::string>;
  EXPECT_EQ(words(table_line(copy)), (Words{"memcpy", "2000", "1.000", "4.000", "2.000"}));
  EXPECT_EQ(words(table_line(wake)), (Words{"futex", "-", "1.000", "4.000", "-"}));
  EXPECT_EQ(
      json_line(copy),
      "{\"ceiling\": \"memcpy\", \"size\": 2000, \"p50_us\": 1.0000, \"p99_us\": 4.0000, \"iters\": 20}");
}

}  // namespace
}  // namespace pc::bench
