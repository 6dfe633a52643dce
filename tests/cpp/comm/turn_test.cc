// Threads of a rank wait for each other no longer than they said, hear Ctrl-C, and that the group has ended.
#include "comm/turn.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "comm/runtime.h"

namespace pc::testing {
namespace {

// One rank; this thread has the turn, and `waits` of another one wants it.
class TurnTest : public ::testing::Test {
 protected:
  void SetUp() override {
    RuntimeOptions options;
    options.interrupted = [this] { return interrupts_.load(); };
    runtime_ = Runtime::create(std::move(options), Deadline::after(20)).value();
    held_ = take(20).value();
  }
  Result<std::shared_ptr<void>> take(double timeout_s) {
    return turn_.take(runtime_->world(), Deadline::after(timeout_s));
  }
  std::future<Status> another_takes(double timeout_s) {
    return std::async(std::launch::async, [this, timeout_s] { return take(timeout_s).status(); });
  }
  std::atomic<bool> interrupts_{false};
  std::unique_ptr<Runtime> runtime_;
  Turn turn_{"does that"};
  std::shared_ptr<void> held_;
};

TEST_F(TurnTest, one_has_it_and_the_next_gets_it) {
  std::future<Status> another = another_takes(20);
  EXPECT_TRUE(turn_.is_mine());
  held_ = nullptr;
  EXPECT_TRUE(another.get().is_ok());
  EXPECT_FALSE(turn_.is_mine());
  held_ = turn_.take_now();
  EXPECT_NE(held_, nullptr);
  EXPECT_EQ(turn_.take_now(), nullptr);
}

TEST_F(TurnTest, who_waits_hears_of_its_deadline) {
  const Status late = another_takes(0.01).get();
  EXPECT_EQ(late.code(), Code::kTimeout);
  EXPECT_NE(late.message().find("this group does that"), std::string::npos) << late.message();
}

TEST_F(TurnTest, who_waits_hears_ctrl_c) {
  interrupts_ = true;
  EXPECT_EQ(another_takes(20).get().code(), Code::kInterrupted);
}

TEST_F(TurnTest, who_waits_hears_that_the_group_has_ended) {
  std::future<Status> another = another_takes(20);
  runtime_->abort(Status(Code::kAborted, "asked for"));
  EXPECT_EQ(another.get().code(), Code::kAborted);
}

TEST_F(TurnTest, a_signal_handler_inside_is_refused_instead_of_waiting_for_itself) {
  const Status refused = take(20).status();
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_NE(refused.message().find("signal handler that runs while this group does that"), std::string::npos);
}

}  // namespace
}  // namespace pc::testing
