#include "base/status.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>

namespace pc {
namespace {

TEST(Status, ok_carries_nothing) {
  const Status status;
  EXPECT_TRUE(status.is_ok());
  EXPECT_EQ(status.code(), Code::kOk);
  EXPECT_EQ(status.message(), "");
  EXPECT_EQ(status.rank(), -1);
  EXPECT_EQ(status.to_string(), "ok");
  EXPECT_TRUE(Status(Code::kOk, "ignored").is_ok());
  EXPECT_TRUE(status.with_rank(3).with_operation("barrier").is_ok());
}

TEST(Status, its_text_names_the_operation_the_rank_and_the_elapsed_time) {
  const Status plain(Code::kTimeout, "rank 2 is missing");
  EXPECT_EQ(plain.to_string(), "rank 2 is missing");
  const Status full = plain.with_rank(1).with_peer(2).with_operation("allreduce #12").with_elapsed(30);
  EXPECT_EQ(full.to_string(), "allreduce #12 on rank 1 after 30 s: rank 2 is missing");
  EXPECT_EQ(full.code(), Code::kTimeout);
  EXPECT_EQ(full.peer(), 2);
  EXPECT_EQ(full.elapsed_s(), 30);
  EXPECT_EQ(plain.with_rank(1).to_string(), "rank 1: rank 2 is missing");
  EXPECT_EQ(plain.with_elapsed(0.5).to_string(), "after 0.5 s: rank 2 is missing");
  EXPECT_TRUE(plain.operation().empty()) << "the original changed";
}

TEST(Status, the_first_to_know_a_fact_wins) {
  const Status status =
      Status(Code::kPeerFailure, "gone").with_rank(1).with_peer(2).with_operation("a").with_elapsed(1);
  const Status again = status.with_rank(7).with_peer(7).with_operation("b").with_elapsed(7);
  EXPECT_EQ(again.rank(), 1);
  EXPECT_EQ(again.peer(), 2);
  EXPECT_EQ(again.operation(), "a");
  EXPECT_EQ(again.elapsed_s(), 1);
}

TEST(Status, every_code_has_a_name_of_its_own) {
  for (int i = 0; i <= static_cast<int>(Code::kInternal); ++i) {
    EXPECT_NE(name_of(static_cast<Code>(i)), "unknown");
    for (int j = 0; j < i; ++j) EXPECT_NE(name_of(static_cast<Code>(i)), name_of(static_cast<Code>(j)));
  }
}

TEST(Status, system_error_names_call_reason_and_symbol) {
  const Status status = system_error("connect 127.0.0.1:4711", ECONNREFUSED);
  EXPECT_EQ(status.code(), Code::kSystem);
  EXPECT_EQ(status.message(), "connect 127.0.0.1:4711: Connection refused (ECONNREFUSED)");
  EXPECT_EQ(system_error("f", 99999).message(), "f: Unknown error 99999");
}

Result<int> half(int value) {
  if (value % 2 != 0) return Status(Code::kInvalidArgument, "odd");
  return value / 2;
}
Result<int> quarter(int value) {
  PC_ASSIGN_OR_RETURN(const int once, half(value));
  PC_ASSIGN_OR_RETURN(const int twice, half(once));
  return twice;
}
Status check_quarter(int value) {
  PC_TRY(quarter(value).status());
  return Status::ok();
}

TEST(Result, is_a_value_or_a_status) {
  EXPECT_TRUE(quarter(8).is_ok());
  EXPECT_EQ(quarter(8).value(), 2);
  EXPECT_TRUE(quarter(8).status().is_ok());
  EXPECT_FALSE(quarter(6).is_ok());
  EXPECT_EQ(quarter(6).status().message(), "odd");
  EXPECT_TRUE(check_quarter(4).is_ok());
  EXPECT_EQ(check_quarter(2).code(), Code::kInvalidArgument);
}

TEST(Result, gives_away_what_cannot_be_copied) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(5));
  const std::unique_ptr<int> taken = std::move(result).value();
  EXPECT_EQ(*taken, 5);
}

}  // namespace
}  // namespace pc
