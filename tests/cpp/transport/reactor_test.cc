// The reactor alone, over a transport that moves only the test's data.
#include "transport/reactor.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <ctime>
#include <deque>
#include <fstream>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "conformance/world.h"

namespace pc {
namespace {

using testing::kWaitLimit;

Completion completion(uint64_t token) { return {.token = token, .status = {}, .found = {}, .nbytes = 0}; }

// Moves nothing.
class Idle : public Transport {
 public:
  explicit Idle(unsigned event = 0) : event_(::eventfd(event, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  std::string_view name() const override { return "idle"; }
  Capabilities capabilities() const override { return {}; }
  std::string address() const override { return {}; }
  Status connect(const std::vector<std::string>&, const WaitContext&) override { return Status::ok(); }
  void post_send(Rank, const SendOp&) override {}
  void post_recv(Rank, const RecvOp&) override {}
  void post_probe(Rank, const ProbeOp&) override {}
  bool cancel(const CompletionSink*, const Status&) override { return true; }
  void discard(uint32_t, uint64_t) override {}
  void close_group(uint32_t, std::span<const Rank>) override {}
  std::vector<ByteStream> take_control_sockets() override { return {}; }
  std::size_t poll() override { return 0; }
  int wait_fd() const override { return event_.get(); }
  void shutdown(Deadline) override {}
  void abort(const Status&) noexcept override {}
  void close_in_child() noexcept override {}

 protected:
  const Fd event_;
};

// Always makes progress, never on our operations.
class Busy final : public Idle {
 public:
  Busy() : Idle(1) {}
  std::size_t poll() override { return 1; }
};

// poll() completes what arrive() was given; wait_fd() is readable while there is something.
class Mailbox final : public Idle {
 public:
  std::size_t poll() override {
    const std::lock_guard lock(mutex_);
    if (arrived_.empty()) return 0;
    const auto [sink, token] = arrived_.front();
    arrived_.pop_front();
    eventfd_t ignored;
    if (arrived_.empty()) ::eventfd_read(event_.get(), &ignored);
    sink->complete(completion(token));
    return 1;
  }
  void arrive(CompletionSink& sink, uint64_t token) {
    const std::lock_guard lock(mutex_);
    arrived_.emplace_back(&sink, token);
    ::eventfd_write(event_.get(), 1);
  }

 private:
  std::mutex mutex_;  // guards arrived_
  std::deque<std::pair<CompletionSink*, uint64_t>> arrived_;
};

struct ReactorTest : ::testing::Test {
  ReactorTest() { EXPECT_TRUE(reactor.add(&mailbox).is_ok()); }
  ~ReactorTest() override { reactor.remove(&mailbox); }
  WaitContext context() const { return {.deadline = Deadline::after(kWaitLimit)}; }
  Mailbox mailbox;
  Reactor reactor{true};
};

TEST(CompletionQueue, ReturnsCompletionsInOrder) {
  CompletionQueue queue;
  Completion out;
  EXPECT_FALSE(queue.take(out));
  uint64_t next = 0;
  for (uint64_t i = 0; i < 10'000; ++i) {  // adds two and takes one, and at the end takes the rest
    queue.complete(completion(2 * i));
    queue.complete(completion(2 * i + 1));
    ASSERT_TRUE(queue.take(out));
    ASSERT_EQ(out.token, next++);
  }
  while (queue.take(out)) ASSERT_EQ(out.token, next++);
  EXPECT_EQ(next, 20'000U);
  EXPECT_TRUE(queue.empty());
}

TEST_F(ReactorTest, WaitReturnsAtOnceForACompletionThatIsThere) {
  CompletionQueue queue;
  queue.complete(completion(1));
  EXPECT_EQ(reactor.wait(queue, {.deadline = Deadline::after(0)}), WaitEnd::kReady);
}

TEST_F(ReactorTest, ACompletionByAnotherThreadEndsTheSleep) {
  CompletionQueue queue;
  for (uint64_t i = 0; i < 100; ++i) {
    std::thread other([&] { queue.complete(completion(i)); });
    EXPECT_EQ(reactor.wait(queue, context()), WaitEnd::kReady);
    Completion out;
    EXPECT_TRUE(queue.take(out));
    EXPECT_EQ(out.token, i);
    other.join();
  }
}

TEST_F(ReactorTest, ADeadlineAnAbortWordAndAnInterruptEndTheWait) {
  CompletionQueue queue;
  EXPECT_EQ(reactor.wait(queue, {.deadline = Deadline::after(0.02)}), WaitEnd::kTimeout);
  const std::atomic<uint32_t> ended{1};
  EXPECT_EQ(reactor.wait(queue, {.deadline = Deadline::after(kWaitLimit), .abort_word = &ended}),
            WaitEnd::kAborted);
  const std::function<bool()> pressed = [] { return true; };
  EXPECT_EQ(reactor.wait(queue, {.deadline = Deadline::after(kWaitLimit), .interrupted = &pressed}),
            WaitEnd::kInterrupted);
}

TEST_F(ReactorTest, SteadyTrafficOfOthersDoesNotHideDeadlineAndInterrupt) {
  CompletionQueue queue;
  Busy busy;
  ASSERT_TRUE(reactor.add(&busy).is_ok());
  EXPECT_EQ(reactor.wait(queue, {.deadline = Deadline::after(0.02)}), WaitEnd::kTimeout);
  const std::function<bool()> pressed = [] { return true; };
  EXPECT_EQ(reactor.wait(queue, {.deadline = Deadline::after(kWaitLimit), .interrupted = &pressed}),
            WaitEnd::kInterrupted);
  reactor.remove(&busy);
}

TEST_F(ReactorTest, WakeMakesSleepersCheckTheirAbortWord) {
  std::atomic<uint32_t> ended{0};
  std::vector<std::thread> sleepers;
  for (int i = 0; i < 3; ++i) {  // one with the poll lock, two without
    sleepers.emplace_back([&] {
      CompletionQueue queue;
      EXPECT_EQ(reactor.wait(queue, {.deadline = Deadline::after(kWaitLimit), .abort_word = &ended}),
                WaitEnd::kAborted);
    });
  }
  ended = 1;
  reactor.wake();
  for (std::thread& sleeper : sleepers) sleeper.join();
}

TEST_F(ReactorTest, ThreadsThatWaitForEachOtherPollAlternately) {
  constexpr std::size_t kThreads = 3;
  constexpr uint64_t kRounds = 200;
  std::array<CompletionQueue, kThreads> queues;
  std::vector<std::thread> threads;
  for (std::size_t me = 0; me < kThreads; ++me) {
    threads.emplace_back([&, me] {
      for (uint64_t round = 0; round < kRounds; ++round) {
        ASSERT_EQ(reactor.wait(queues[me], context()), WaitEnd::kReady);
        Completion out;
        ASSERT_TRUE(queues[me].take(out));
        ASSERT_EQ(out.token, round);
        const std::size_t next = (me + 1) % kThreads;
        mailbox.arrive(queues[next], next == 0 ? round + 1 : round);
      }
    });
  }
  mailbox.arrive(queues[0], 0);
  for (std::thread& thread : threads) thread.join();
  while (mailbox.poll() > 0) {  // the last thread's message to the first, which has ended
  }
}

// Waits until the kernel reports that the thread sleeps. Spinning and yielding threads are running.
void wait_until_asleep(const std::atomic<pid_t>& thread) {
  const Deadline deadline = Deadline::after(kWaitLimit);
  for (std::string state; state != "S" && !deadline.expired();) {
    std::ifstream file("/proc/self/task/" + std::to_string(thread.load()) + "/stat");
    std::string number, name;
    file >> number >> name >> state;
  }
}

// Two threads sleep, the first with the poll lock. When it leaves, the second thread must take over
// polling for all. If the hand-over were lost, the second thread would detect that only at the end
// of its slice of 50 ms, in every round. On a busy machine some rounds may take as long
// nevertheless, but not the fastest.
TEST_F(ReactorTest, ALeavingThreadHandsPollingToASleeper) {
  double fastest = kWaitLimit;
  for (int round = 0; round < 20; ++round) {
    std::array<CompletionQueue, 2> queues;
    std::array<std::atomic<pid_t>, 2> ids = {};
    std::array<std::thread, 2> threads;
    for (std::size_t i = 0; i < 2; ++i) {
      threads[i] = std::thread([&, i] {
        ids[i] = static_cast<pid_t>(::syscall(SYS_gettid));  // glibc has gettid since 2.30
        EXPECT_EQ(reactor.wait(queues[i], context()), WaitEnd::kReady);
      });
      wait_until_asleep(ids[i]);
    }
    const TimePoint began = std::chrono::steady_clock::now();
    queues[0].complete(completion(0));
    threads[0].join();
    mailbox.arrive(queues[1], 1);
    threads[1].join();
    fastest =
        std::min(fastest, std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  }
  EXPECT_LT(fastest, 0.025);
}

// A signal handler runs in the probe of the thread that polls for all, and joins a thread that must
// be polled for.
TEST_F(ReactorTest, WhileTheProbeRunsAnotherThreadPolls) {
  CompletionQueue mine, others;
  std::atomic<bool> called{false};
  const std::function<bool()> handler = [&] {
    if (called.exchange(true)) return false;
    mailbox.arrive(others, 1);
    std::thread waiter([&] { EXPECT_EQ(reactor.wait(others, context()), WaitEnd::kReady); });
    waiter.join();
    mailbox.arrive(mine, 2);
    return false;
  };
  WaitContext asked = context();
  asked.interrupted = &handler;
  EXPECT_EQ(reactor.wait(mine, asked), WaitEnd::kReady);
  EXPECT_TRUE(called);
}

double thread_cpu_s() {
  timespec used{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

TEST_F(ReactorTest, AWaitThatIsProbedSleepsBetweenTheProbes) {
  CompletionQueue queue;
  const std::function<bool()> nothing_pending = [] { return false; };
  const double before = thread_cpu_s();
  EXPECT_EQ(reactor.wait(queue, {.deadline = Deadline::after(0.5), .interrupted = &nothing_pending}),
            WaitEnd::kTimeout);
  EXPECT_LT(thread_cpu_s() - before, 0.1);
}

// A thread that sees a completion may destroy the queue immediately, while complete() is still
// returning.
TEST(CompletionQueue, MayBeDestroyedAsSoonAsACompletionIsSeen) {
  for (int round = 0; round < 2000; ++round) {
    auto queue = std::make_unique<CompletionQueue>();
    std::thread other([raw = queue.get()] { raw->complete(completion(1)); });
    while (queue->empty()) {
    }
    queue.reset();
    other.join();
  }
}

TEST_F(ReactorTest, ARemovedTransportIsNotPolledAnyMore) {
  CompletionQueue queue;
  reactor.remove(&mailbox);
  mailbox.arrive(queue, 1);
  EXPECT_EQ(reactor.wait(queue, {.deadline = Deadline::after(0.01)}), WaitEnd::kTimeout);
  ASSERT_TRUE(reactor.add(&mailbox).is_ok());
  EXPECT_EQ(reactor.wait(queue, context()), WaitEnd::kReady);
}

}  // namespace
}  // namespace pc
