// Threads of a rank get the lock in the order in which they requested it, wait no longer than their
// timeout, and are interrupted by Ctrl-C and by the end of the group.
#include "gpu/fifo_lock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <optional>
#include <thread>

#include "comm/runtime.h"

namespace pc::testing {
namespace {

// One rank. This thread holds the lock, and other threads request it.
class FifoLockTest : public ::testing::Test {
 protected:
  void SetUp() override {
    RuntimeOptions options;
    options.interrupted = [this] {
      if (calls_in_handler_.exchange(false)) in_handler_ = take(20).status();
      ++probes_;
      return interrupts_.load();
    };
    runtime_ = Runtime::create(std::move(options), Deadline::after(20)).value();
    held_.emplace(take(20).value());
  }
  Result<FifoLock::Held> take(double timeout_s) {
    return issue_order_.take(runtime_->world(), Deadline::after(timeout_s));
  }
  std::future<Status> another_takes(double timeout_s) {
    return std::async(std::launch::async, [this, timeout_s] { return take(timeout_s).status(); });
  }
  // Returns when another thread waits for the lock. That thread calls `then` while it holds the
  // lock.
  std::future<Status> another_waits(const std::function<void()>& then = [] {}) {
    probes_ = 0;
    auto another = std::async(std::launch::async, [this, then] {
      const Result<FifoLock::Held> mine = take(20);
      if (mine.is_ok()) then();
      return mine.status();
    });
    while (probes_ == 0) std::this_thread::yield();
    return another;
  }
  std::atomic<bool> interrupts_{false}, calls_in_handler_{false};
  std::atomic<int> probes_{0};
  Status in_handler_;
  std::unique_ptr<Runtime> runtime_;
  FifoLock issue_order_{"does that"};
  std::optional<FifoLock::Held> held_;
};

TEST_F(FifoLockTest, one_has_it_and_the_next_gets_it) {
  std::future<Status> another = another_takes(20);
  EXPECT_TRUE(issue_order_.is_mine());
  held_.reset();
  EXPECT_TRUE(another.get().is_ok());
  EXPECT_FALSE(issue_order_.is_mine());
  std::optional<FifoLock::Held> now = issue_order_.take_now();
  EXPECT_TRUE(now);
  EXPECT_FALSE(issue_order_.take_now());
  EXPECT_FALSE(std::async(std::launch::async, [&] { return issue_order_.take_now().has_value(); }).get());
}

TEST_F(FifoLockTest, a_thread_that_takes_it_again_queues_behind_the_threads_that_wait) {
  for (int i = 0; i < 20; ++i) {
    std::atomic<bool> had_it{false};
    std::future<Status> another = another_waits([&] { had_it = true; });
    held_.reset();
    held_.emplace(take(20).value());
    EXPECT_TRUE(had_it);
    EXPECT_TRUE(another.get().is_ok());
  }
}

TEST_F(FifoLockTest, a_wait_ends_at_its_deadline_and_leaves_the_queue) {
  const Status late = another_takes(0.01).get();
  EXPECT_EQ(late.code(), Code::kTimeout);
  EXPECT_NE(late.message().find("this group does that"), std::string::npos) << late.message();
  held_.reset();
  EXPECT_TRUE(take(20).is_ok());
}

TEST_F(FifoLockTest, a_wait_ends_on_ctrl_c) {
  interrupts_ = true;
  EXPECT_EQ(another_takes(20).get().code(), Code::kInterrupted);
}

TEST_F(FifoLockTest, a_wait_ends_when_the_group_ends) {
  std::future<Status> another = another_waits();
  runtime_->abort(Status(Code::kAborted, "asked for"));
  EXPECT_EQ(another.get().code(), Code::kAborted);
}

TEST_F(FifoLockTest, a_signal_handler_inside_is_refused_instead_of_waiting_for_itself) {
  const Status refused = take(20).status();
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_NE(refused.message().find("signal handler that runs while this group does that"), std::string::npos);
  calls_in_handler_ = true;  // in a thread that waits
  std::future<Status> another = another_waits();
  held_.reset();
  EXPECT_TRUE(another.get().is_ok());
  EXPECT_EQ(in_handler_.code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace pc::testing
