// How a row is printed: in the columns of nccl-tests; on GPUs also with its widths.
#include "bench/table.h"

#include <gtest/gtest.h>

#include <iterator>
#include <sstream>

#include "bench/rows.h"

namespace pc::bench {
namespace {

using Columns = std::vector<std::string>;
Columns host_columns(const Row& row) {
  std::istringstream stream(table_lines({}, row));
  return {std::istream_iterator<std::string>(stream), {}};
}

TEST(BenchTable, columns_come_in_the_order_of_nccl_tests) {
  EXPECT_EQ(host_columns(host_row("allreduce", 1)), (Columns{"1024", "512", "bfloat16", "max", "-1", "12.50",
                                                             "0.082", "0.123", "3", "12.00", "40.00"}));
  EXPECT_EQ(host_columns(host_row("broadcast", 1))[3], "none");
  EXPECT_EQ(host_columns(host_row("broadcast", 1))[4], "1");
  EXPECT_EQ(host_columns(host_row("reduce", {}))[4], "rotate");
}

TEST(BenchTable, what_was_not_checked_is_not_called_right) {
  Row unchecked = host_row("allreduce", {});
  unchecked.in_place->wrong.reset();
  EXPECT_EQ(host_columns(unchecked)[8], "N/A");
}

TEST(BenchTable, on_gpus_a_line_has_the_columns_and_widths_of_nccl_tests) {
  EXPECT_EQ(table_lines(on_gpus(), gpu_row()),
            "    33554432       8388608   float32     sum      -1"
            "    123.5  271.79  271.79       0    98.77  271.79  271.79     N/A");
}

TEST(BenchTable, long_times_lose_digits_and_unmeasured_columns_are_n_a) {
  Row slow = gpu_row();
  slow.out_of_place.reset();
  slow.in_place->time.done.mean_s = 0.0123456;
  EXPECT_EQ(table_lines(on_gpus(), slow),
            "    33554432       8388608   float32     sum      -1"
            "      N/A     N/A     N/A     N/A    12346  271.79  271.79     N/A");
}

TEST(BenchTable, the_hosts_time_replaces_the_other_if_it_is_requested) {
  Options options = on_gpus();
  options.host_time = true;
  EXPECT_NE(table_lines(options, gpu_row()).find("     3.50  271.79"), std::string::npos);
}

TEST(BenchTable, beside_nccls_own_call_all_differences_and_its_wrong_elements_are_printed) {
  Row row = compared_row();
  EXPECT_TRUE(
      table_lines(on_gpus(), row)
          .ends_with("\n# NCCL's own call: out of place 122.21 us, ours +1.25, median 120.00 us, ours "
                     "+3.00, p99 122.00 us, ours +778.00, until queued 2.25 us, ours +1.25, median "
                     "2.00 us, ours +0.50, p99 4.00 us, ours +0.00, #wrong 0"));
  row.out_of_place->raw_wrong.reset();
  EXPECT_TRUE(table_lines(on_gpus(), row).ends_with(", #wrong N/A"));
}

TEST(BenchTable, the_drivers_copy_has_a_line_of_its_own) {
  Row row = gpu_row();
  row.copy_s = 1e-3;
  EXPECT_TRUE(table_lines(on_gpus(), row).ends_with("\n# the driver's copy: 1000.00 us, 33.55 GB/s"));
}

}  // namespace
}  // namespace pc::bench
