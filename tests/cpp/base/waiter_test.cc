#include "base/waiter.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <vector>

#include "base/fd.h"

namespace pc {
namespace {

const auto never = [] { return false; };

// Blocks for `ms` on a descriptor that stays silent.
void block(int ms) { ::poll(nullptr, 0, ms); }

double thread_cpu_s() {
  timespec t = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

TEST(Waiter, what_is_ready_needs_no_sleep_even_after_the_deadline) {
  const std::atomic<uint32_t> aborted{1};
  const WaitContext context{Deadline::after(0), &aborted, nullptr};
  Waiter waiter;
  EXPECT_EQ(waiter.wait(
                context, [] { return true; }, [](int) { FAIL() << "slept"; }),
            WaitEnd::kReady);
}

TEST(Waiter, ends_at_the_deadline_and_not_before) {
  for (const bool oversubscribed : {false, true}) {
    const Deadline deadline = Deadline::after(0.12);
    Waiter waiter(oversubscribed);
    EXPECT_EQ(waiter.wait(WaitContext{deadline}, never, block), WaitEnd::kTimeout);
    EXPECT_TRUE(deadline.expired());
    EXPECT_GT(deadline.remaining_s(), -5.0);
  }
}

TEST(Waiter, sleeps_in_slices_of_at_most_50_ms) {
  std::vector<int> slices;
  Waiter waiter;
  const WaitContext context{Deadline::after(0.12)};
  waiter.wait(context, never, [&](int ms) {
    slices.push_back(ms);
    block(ms);
  });
  ASSERT_FALSE(slices.empty());
  EXPECT_LE(*std::max_element(slices.begin(), slices.end()), 50);
  EXPECT_GE(*std::min_element(slices.begin(), slices.end()), 0);
}

TEST(Waiter, an_abort_word_ends_a_wait_with_time_left) {
  std::atomic<uint32_t> aborted{0};
  Waiter waiter;
  const WaitContext context{Deadline::after(60), &aborted, nullptr};
  EXPECT_EQ(waiter.wait(context, never, [&](int) { aborted = 1; }), WaitEnd::kAborted);
}

TEST(Waiter, an_interrupt_ends_a_wait_and_is_polled_only_once_a_slice) {
  int asked = 0, slept = 0;
  const std::function<bool()> interrupted = [&] { return ++asked == 3; };
  const std::function<bool()> no_probe;
  Waiter waiter;
  EXPECT_EQ(
      waiter.wait(WaitContext{Deadline::after(60), nullptr, &interrupted}, never, [&](int) { ++slept; }),
      WaitEnd::kInterrupted);
  EXPECT_EQ(asked, 3);
  EXPECT_EQ(slept, 2);
  EXPECT_EQ(waiter.wait(WaitContext{Deadline::after(0), nullptr, &no_probe}, never, block),
            WaitEnd::kTimeout);
}

TEST(Waiter, what_becomes_ready_while_sleeping_wins_over_abort) {
  std::atomic<uint32_t> aborted{0};
  bool ready = false;
  Waiter waiter;
  const WaitContext context{Deadline::after(60), &aborted, nullptr};
  const WaitEnd end = waiter.wait(
      context, [&] { return ready; },
      [&](int) {
        ready = true;
        aborted = 1;
      });
  EXPECT_EQ(end, WaitEnd::kReady);
}

TEST(Waiter, wakes_up_for_another_thread_again_and_again) {
  const Fd event(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  ASSERT_TRUE(event.valid());
  std::atomic<uint32_t> posted{0}, taken{0};
  constexpr uint32_t kRounds = 200;
  std::thread poster([&] {
    Waiter waiter;
    for (uint32_t i = 1; i <= kRounds; ++i) {
      posted.store(i, std::memory_order_release);
      const uint64_t one = 1;
      EXPECT_EQ(::write(event.get(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
      const auto answered = [&] { return taken.load(std::memory_order_acquire) == i; };
      EXPECT_EQ(waiter.wait(WaitContext{Deadline::after(30)}, answered, [](int) { block(1); }),
                WaitEnd::kReady);
    }
  });
  Waiter waiter;
  for (uint32_t i = 1; i <= kRounds; ++i) {
    const auto arrived = [&] { return posted.load(std::memory_order_acquire) == i; };
    const auto sleep = [&](int ms) {
      pollfd p = {event.get(), POLLIN, 0};
      ::poll(&p, 1, ms);
    };
    EXPECT_EQ(waiter.wait(WaitContext{Deadline::after(30)}, arrived, sleep), WaitEnd::kReady);
    // 0 if the waiter saw the word before the event was set. The next sleep then ends early.
    uint64_t drained = 0;
    EXPECT_TRUE(::read(event.get(), &drained, sizeof drained) > 0 || errno == EAGAIN);
    taken.store(i, std::memory_order_release);
  }
  poster.join();
}

TEST(Waiter, a_blocked_wait_uses_less_than_a_twentieth_of_a_core) {
  Waiter waiter;
  const double before = thread_cpu_s();
  EXPECT_EQ(waiter.wait(WaitContext{Deadline::after(0.3)}, never, block), WaitEnd::kTimeout);
  EXPECT_LT(thread_cpu_s() - before, 0.3 / 20);
}

TEST(Waiter, notifies_its_core_watch_of_a_preemption) {
  struct Watch final : CoreWatch {
    void preempted() override { notified.store(true); }
    std::atomic<bool> notified{false};
  } watch;
  const int core = ::sched_getcpu();
  if (core < 0 || core >= CPU_SETSIZE) GTEST_SKIP() << "this machine has too many cores";
  const auto stay_there = [core] {
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(core, &only);
    ASSERT_EQ(::sched_setaffinity(0, sizeof only, &only), 0);
  };
  const Deadline deadline = Deadline::after(20);
  const auto is_over = [&] { return watch.notified.load() || deadline.expired(); };
  std::thread busy([&] {
    stay_there();
    while (!is_over()) {
    }
  });
  std::thread waiting([&] {
    stay_there();
    Waiter waiter(true, Waiter::flags(), &watch);
    while (!waiter.briefly(is_over)) {
    }
  });
  busy.join();
  waiting.join();
  EXPECT_TRUE(watch.notified.load());
}

}  // namespace
}  // namespace pc
