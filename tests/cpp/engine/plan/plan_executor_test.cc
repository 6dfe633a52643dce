// The engine against a transport that does nothing until the test acts: what is posted when, and
// what remains at the end.
#include "engine/plan/plan_executor.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <functional>
#include <new>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "conformance/elements.h"
#include "engine/plan/plan_cache.h"
#include "engine/plan/plan_run.h"

namespace pc::testing {
namespace {

class ScriptedTransport final : public Transport {
 public:
  std::vector<SendOp> sends;
  std::vector<RecvOp> recvs;
  int cancels = 0;
  int posts_until_no_memory = -1;  // negative: no limit
  std::mutex mutex;                // guards polls
  int polls = 0;
  std::function<void()> on_poll;  // moves data while a thread waits

  void complete(const SendOp& op, const Status& status = {}) {
    op.completions->complete({op.token, status, op.id, 0});
  }
  void deliver(const RecvOp& op, const Elements& message) {
    ASSERT_EQ(op.nbytes, message.bytes.size());
    if (op.consumer != nullptr) {
      op.consumer->consume(0, message.bytes);
    } else {
      std::copy(message.bytes.begin(), message.bytes.end(), op.payload.begin());
    }
    op.completions->complete({op.token, {}, op.id, op.nbytes});
  }

  std::string_view name() const override { return "scripted"; }
  Capabilities capabilities() const override { return {}; }
  std::string address() const override { return ""; }
  Status connect(const std::vector<std::string>&, const WaitContext&) override { return {}; }
  void post_send(Rank, const SendOp& op) override {
    if (posts_until_no_memory-- == 0) throw std::bad_alloc();
    sends.push_back(op);
  }
  void post_recv(Rank, const RecvOp& op) override {
    if (posts_until_no_memory-- == 0) throw std::bad_alloc();
    recvs.push_back(op);
  }
  void post_probe(Rank, const ProbeOp&) override {}
  void discard(uint32_t, uint64_t) override {}
  void close_group(uint32_t, std::span<const Rank>) override {}
  std::vector<ByteStream> take_control_sockets() override { return {}; }
  bool cancel(const CompletionSink* sink, const Status&) override {
    ++cancels;
    std::erase_if(sends, [&](const SendOp& op) { return op.completions == sink; });
    std::erase_if(recvs, [&](const RecvOp& op) { return op.completions == sink; });
    return false;
  }
  std::size_t poll() override {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      ++polls;
    }
    if (!on_poll) return 0;
    on_poll();
    return 1;
  }
  int wait_fd() const override { return never_.get(); }
  void shutdown(Deadline) override {}
  void abort(const Status&) noexcept override {}
  void close_in_child() noexcept override {}

 private:
  const Fd never_{::eventfd(0, EFD_CLOEXEC)};
};

// Rank 0 of 2.
class PlanExecutorTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(reactor_.add(&transport_).is_ok()); }
  void TearDown() override { reactor_.remove(&transport_); }

  WorkPtr allreduce(Elements& x, const char* algorithm) { return allreduce(x.buffer(), algorithm); }
  WorkPtr allreduce(const Buffer& x, const char* algorithm) {
    Request request;
    request.collective = Collective::kAllreduce;
    request.in = x;
    request.out = x;
    Launch launch;
    launch.group = 3;
    launch.sequence = ++sequence_;
    launch.digest = 99;
    launch.size = 2;
    launch.world_ranks = world_ranks_;
    launch.algorithm = find_algorithm(Collective::kAllreduce, algorithm);
    return executor_.launch(request, launch).value();
  }
  // Only the thread that drives the run polls.
  bool first_is_driven() {
    const std::lock_guard<std::mutex> lock(transport_.mutex);
    return transport_.polls > 0;
  }
  static WaitContext soon(double seconds = 10) { return {Deadline::after(seconds)}; }

  const Rank world_ranks_[2] = {0, 1};
  uint64_t sequence_ = 0;
  ScriptedTransport transport_;
  Reactor reactor_{false};
  PlanExecutor executor_{transport_, reactor_};
  const Elements theirs_ = contribution(DType::kF32, 8, 1, 2);
};

TEST_F(PlanExecutorTest, the_first_steps_are_posted_at_launch_under_the_calls_name) {
  Elements x = contribution(DType::kF32, 8, 0, 2);
  const WorkPtr work = allreduce(x, "recursive_doubling");
  ASSERT_EQ(transport_.sends.size(), 1u);
  ASSERT_EQ(transport_.recvs.size(), 1u);
  const MessageId& id = transport_.sends[0].id;
  EXPECT_TRUE(id.stream == (Stream{3, StreamClass::kCollective, 0}) && id.sequence == 1 && id.index == 0 &&
              id.digest == 99);
  EXPECT_EQ(transport_.sends[0].payload.together()->data(), x.bytes.data());
  EXPECT_FALSE(work->done());
  EXPECT_EQ(work->where(), "step 2/3: recv chunk 0 into scratch 0 <- rank 1");
}

TEST_F(PlanExecutorTest, a_large_list_is_sent_in_place) {
  constexpr std::size_t kCount = 300'000;
  Elements x = contribution(DType::kF32, kCount, 0, 2), y = x;
  IoVec list;
  list.add(x.bytes.data(), x.bytes.size());
  list.add(y.bytes.data(), y.bytes.size());
  const Buffer both{nullptr, 2 * kCount, DType::kF32, {}, nullptr, &list};
  const WorkPtr work = allreduce(both, "recursive_doubling");
  ASSERT_EQ(transport_.sends.size(), 1u);
  std::vector<std::span<const std::byte>> pieces;
  transport_.sends[0].payload.each([&](std::span<const std::byte> piece) { pieces.push_back(piece); });
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_TRUE(pieces[0].data() == x.bytes.data() && pieces[1].data() == y.bytes.data());
}

TEST_F(PlanExecutorTest, a_small_list_is_sent_from_a_copy_and_has_its_result_at_the_end) {
  Elements x = contribution(DType::kF32, 8, 0, 2);
  const Elements before = x;
  IoVec list;
  list.add(x.bytes.data() + 20, 12);
  list.add(x.bytes.data(), 20);
  const WorkPtr work = allreduce(Buffer{nullptr, 8, DType::kF32, {}, nullptr, &list}, "recursive_doubling");
  ASSERT_TRUE(transport_.sends[0].payload.together());
  transport_.deliver(transport_.recvs[0], filled(DType::kF32, 8, std::byte{0}));
  EXPECT_TRUE(x.bytes == before.bytes);
  transport_.complete(transport_.sends[0]);
  ASSERT_TRUE(work->wait(soon()).is_ok());
  EXPECT_TRUE(x.bytes == before.bytes) << "and nothing was added";
}

TEST_F(PlanExecutorTest, memory_that_is_still_being_sent_is_not_written) {
  Elements x = contribution(DType::kF32, 8, 0, 2);
  const Elements before = x;
  const WorkPtr work = allreduce(x, "recursive_doubling");
  int polls = 0;
  transport_.on_poll = [&] {
    ++polls;
    if (polls == 1) return transport_.deliver(transport_.recvs[0], theirs_);
    if (polls > 2) return;
    EXPECT_TRUE(x.bytes == before.bytes) << "added into memory before its send was complete";
    transport_.complete(transport_.sends[0]);
  };
  ASSERT_TRUE(work->wait(soon()).is_ok());
  EXPECT_GE(polls, 2);
  EXPECT_TRUE(x.bytes == reduced(DType::kF32, ReduceOp::kSum, 8, 2).bytes);
}

TEST_F(PlanExecutorTest, a_call_is_not_over_before_its_last_send_is) {
  Elements x = contribution(DType::kF32, 8, 0, 2);
  const WorkPtr work = allreduce(x, "recursive_doubling");
  transport_.deliver(transport_.recvs[0], theirs_);
  EXPECT_EQ(work->wait(soon(0.01)).code(), Code::kTimeout);
}

TEST_F(PlanExecutorTest, the_next_call_posts_nothing_until_the_first_has_ended) {
  Elements x = contribution(DType::kF32, 8, 0, 2), y = x;
  const WorkPtr first = allreduce(x, "recursive_doubling");
  const WorkPtr second = allreduce(y, "recursive_doubling");
  EXPECT_EQ(transport_.sends.size(), 1u);
  EXPECT_EQ(second->where(), "not started: earlier calls of this group are not done");
  transport_.deliver(transport_.recvs[0], theirs_);
  transport_.complete(transport_.sends[0]);
  ASSERT_TRUE(first->wait(soon()).is_ok());
  ASSERT_EQ(transport_.sends.size(), 2u) << "peers must not wait until a thread here waits";
  EXPECT_EQ(transport_.sends[1].id.sequence, 2u);
  transport_.deliver(transport_.recvs[1], theirs_);
  transport_.complete(transport_.sends[1]);
  EXPECT_TRUE(second->wait(soon()).is_ok());
  EXPECT_TRUE(y.bytes == reduced(DType::kF32, ReduceOp::kSum, 8, 2).bytes);
}

TEST_F(PlanExecutorTest, a_timeout_takes_everything_back_so_that_memory_is_free) {
  Elements x = contribution(DType::kF32, 8, 0, 2);
  const WorkPtr work = allreduce(x, "ring");
  ASSERT_FALSE(transport_.sends.empty() || transport_.recvs.empty());
  const Status status = work->wait(soon(0.01));
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_EQ(status.peer(), 1);
  EXPECT_NE(status.message().find("step 2/4: recv_reduce chunk 1 <- rank 1"), std::string::npos)
      << status.message();
  EXPECT_TRUE(transport_.sends.empty() && transport_.recvs.empty());
  EXPECT_EQ(work->wait(soon()).code(), Code::kTimeout) << "asking again tells the same";
}

TEST_F(PlanExecutorTest, dropped_work_takes_everything_back) {
  Elements x = contribution(DType::kF32, 8, 0, 2);
  allreduce(x, "ring").reset();
  EXPECT_TRUE(transport_.sends.empty() && transport_.recvs.empty());
}

TEST_F(PlanExecutorTest, a_call_that_gets_no_memory_takes_everything_back_and_the_next_one_runs) {
  Elements x = contribution(DType::kF32, 8, 0, 2);
  for (int posts = 0; posts < 2; ++posts) {
    transport_.posts_until_no_memory = posts;
    const WorkPtr work = allreduce(x, "recursive_doubling");
    EXPECT_EQ(work->wait(soon()).code(), Code::kSystem);
    EXPECT_TRUE(transport_.sends.empty() && transport_.recvs.empty());
    transport_.posts_until_no_memory = -1;
    const WorkPtr next = allreduce(x, "recursive_doubling");
    ASSERT_EQ(transport_.sends.size() + transport_.recvs.size(), 2u);
    transport_.complete(transport_.sends.back());
    transport_.deliver(transport_.recvs.back(), contribution(DType::kF32, 8, 1, 2));
    EXPECT_TRUE(next->wait(soon()).is_ok());
    transport_.sends.clear();
    transport_.recvs.clear();
    x = contribution(DType::kF32, 8, 0, 2);
  }
}

TEST_F(PlanExecutorTest, abort_ends_running_waiting_and_later_calls) {
  Elements x = contribution(DType::kF32, 8, 0, 2), y = x, z = x;
  const WorkPtr running = allreduce(x, "ring"), waiting = allreduce(y, "ring");
  executor_.abort(Status(Code::kAborted, "enough"));
  const WorkPtr later = allreduce(z, "ring");
  for (const WorkPtr* work : {&running, &waiting, &later}) {
    EXPECT_TRUE((*work)->done());
    EXPECT_EQ((*work)->wait(soon()).message(), "enough");
  }
  EXPECT_TRUE(transport_.sends.empty() && transport_.recvs.empty());
}

// A thread that reaches its deadline requests the driving thread to end the run, which has just
// ended. The run is then reused.
TEST_F(PlanExecutorTest, a_late_request_to_end_a_call_does_not_end_the_next_call) {
  PlanCache plans;
  const Algorithm& algorithm = *find_algorithm(Collective::kBarrier, "dissemination");
  const std::shared_ptr<const CompiledPlan> plan =
      plans.get(algorithm, {Collective::kBarrier, 0, 2, 0, 1}).value();
  Launch launch;
  launch.size = 2;
  launch.world_ranks = world_ranks_;
  PlanRun run(transport_, algorithm, plan);
  Scratch scratch;
  for (int call = 0; call < 2; ++call) {
    run.prepare(Request{}, launch);
    run.start(scratch);
    ASSERT_FALSE(run.ended()) << run.result().to_string();
    transport_.complete(transport_.sends.back());
    transport_.recvs.back().completions->complete({transport_.recvs.back().token, {}, {}, 0});
    run.advance();
    ASSERT_TRUE(run.ended());
    EXPECT_TRUE(run.result().is_ok()) << run.result().to_string();
    run.request_end(Status(Code::kTimeout, "too late"));
  }
}

// The probe runs signal handlers, and these may call any function, so no mutex may be held
// meanwhile.
TEST_F(PlanExecutorTest, a_probe_may_abort_while_another_thread_drives) {
  Elements x = contribution(DType::kF32, 8, 0, 2), y = x;
  const WorkPtr first = allreduce(x, "ring"), second = allreduce(y, "ring");
  Status of_first;
  std::thread driver([&] { of_first = first->wait(soon()); });
  while (!first_is_driven()) std::this_thread::yield();
  const std::function<bool()> probe = [&] {
    executor_.abort(Status(Code::kAborted, "enough"));
    return false;
  };
  EXPECT_EQ(second->wait({Deadline::after(10), nullptr, &probe}).message(), "enough");
  driver.join();
  EXPECT_EQ(of_first.message(), "enough");
}

TEST_F(PlanExecutorTest, a_probe_may_drop_the_work_that_this_thread_drives) {
  Elements x = contribution(DType::kF32, 8, 0, 2), y = x;
  WorkPtr first = allreduce(x, "ring");
  const WorkPtr second = allreduce(y, "ring");
  const std::function<bool()> probe = [&] {
    first.reset();
    return false;
  };
  EXPECT_EQ(second->wait({Deadline::after(0.3), nullptr, &probe}).code(), Code::kTimeout);
  EXPECT_TRUE(transport_.sends.empty() && transport_.recvs.empty());
  EXPECT_GE(transport_.cancels, 2) << "the second was never started";
}

TEST_F(PlanExecutorTest, a_broken_message_ends_the_call_with_peer_and_step) {
  Elements x = contribution(DType::kF32, 8, 0, 2);
  const WorkPtr work = allreduce(x, "ring");
  transport_.complete(transport_.sends[0], Status(Code::kPeerFailure, "reset by peer"));
  const Status status = work->wait(soon());
  EXPECT_EQ(status.code(), Code::kPeerFailure);
  EXPECT_EQ(status.peer(), 1);
  EXPECT_EQ(status.message(), "reset by peer; in step 1/4: send chunk 0 -> rank 1");
  EXPECT_TRUE(transport_.recvs.empty());
}

}  // namespace
}  // namespace pc::testing
