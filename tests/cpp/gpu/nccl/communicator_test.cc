// The life of a communicator: what it waits for, what makes it fail, and that it always ends.
#include "gpu/nccl/communicator.h"

#include <array>
#include <functional>
#include <tuple>

#include "base/fd.h"
#include "fake_library.h"
#include "gpu/nccl/poll.h"

namespace pc::nccl::testing {
namespace {

using namespace std::chrono_literals;

class NcclCommunicator : public ::testing::Test {
 protected:
  Resources resources() { return {library.shared_api(), &clock, Logger(LogLevel::kWarning, -1, log_fd)}; }
  WaitContext soon() { return WaitContext{clock.in(60)}; }
  Result<std::unique_ptr<Communicator>> init_with(const Options& options = {}) {
    return Communicator::init(resources(), {make_unique_id(library.api()).value(), 0, 1}, options, soon());
  }
  std::unique_ptr<Communicator> alone() { return init_with().value(); }
  std::vector<std::unique_ptr<Communicator>> pair() { return join_all(resources(), 2, soon()); }
  void wait_for_a_stuck_call() const {
    while (library->blocked() == 0) std::this_thread::yield();
  }
  // Makes an allreduce of one number. A single rank keeps its value.
  Status allreduce(Communicator& communicator) {
    return communicator.grouped(soon(), [&](Issue& issue) {
      issue.took("ncclAllReduce", issue.api().all_reduce(&word, &word, 1, DataType::kInt32, RedOp::kSum,
                                                         issue.comm(), nullptr));
    });
  }

  StepClock clock;
  FakeLibrary library{FAKE_NCCL_22809};
  int log_fd = -1;  // most tests discard the warnings
  int word = 7;
};

TEST_F(NcclCommunicator, is_made_used_and_closed) {
  const auto communicator = init_with({"gradients", 1, 4}).value();
  EXPECT_EQ(communicator->state(), State::kReady);
  EXPECT_EQ(communicator->rank(), 0);
  EXPECT_EQ(communicator->size(), 1);
  EXPECT_TRUE(allreduce(*communicator).is_ok());
  EXPECT_TRUE(communicator->check().is_ok());
  EXPECT_TRUE(communicator->close(soon()).is_ok());
  EXPECT_EQ(communicator->state(), State::kDead);
  EXPECT_STREQ(library->record(),
               "init(0/1) Split(0) Finalize Destroy\nchild(0/1) [AllReduce] Finalize Destroy\n");
  EXPECT_TRUE(communicator->close(soon()).is_ok());  // the second call does nothing
  EXPECT_EQ(allreduce(*communicator).code(), Code::kNotInitialized);
}

// A communicator that ranks join is non-blocking, and so are all with NCCL_COMM_BLOCKING=0.
TEST_F(NcclCommunicator, every_call_that_is_in_progress_is_settled_before_the_next) {
  library->never_blocks(1);
  for (const int queries : {1, 2, 100}) {
    library->in_progress(queries);
    const auto communicator = alone();
    EXPECT_TRUE(allreduce(*communicator).is_ok());
    EXPECT_TRUE(allreduce(*communicator).is_ok());
    EXPECT_TRUE(communicator->close(soon()).is_ok());
  }  // the fake records a violation for a call that is made too early
}

TEST_F(NcclCommunicator, an_init_that_hangs_ends_at_the_deadline_and_leaves_nothing) {
  library->hang_init(1);
  std::thread hurries([&] {
    while (library->alive() == 0) std::this_thread::yield();
    clock.advance(100s);  // not before the init has begun: after the deadline NCCL would not be called at all
  });
  Resources patient = resources();
  patient.abort_wait_limit_s = 1e8;
  const auto made = Communicator::init(patient, {make_unique_id(library.api()).value(), 1, 2}, {}, soon());
  hurries.join();
  ASSERT_FALSE(made.is_ok());
  EXPECT_EQ(made.status().code(), Code::kTimeout);
  EXPECT_NE(made.status().message().find("ncclCommInitRankConfig: NCCL was still at it"), std::string::npos);
  // Only now can the thread that began the init abort it.
  while (library->alive() != 0 || library.calls_of_newest() != "init(1/2) Abort") std::this_thread::yield();
}

TEST_F(NcclCommunicator, an_init_that_nccl_begins_late_leaves_nothing_either) {
  library->block_next("CommInitRankConfig");
  std::thread hurries([&] {
    wait_for_a_stuck_call();
    clock.advance(100s);
  });
  const auto made = init_with();
  hurries.join();
  EXPECT_EQ(made.status().code(), Code::kTimeout);
  library->release();
  while (library->blocked() != 0 || library->alive() != 0 || library.calls_of_newest() != "init(0/1) Abort")
    std::this_thread::yield();
}

TEST_F(NcclCommunicator, an_init_that_fails_says_what_nccl_says) {
  library->fail_next("CommInitRankConfig", 5, 0);
  const auto made = init_with();
  ASSERT_FALSE(made.is_ok());
  EXPECT_EQ(made.status().code(), Code::kUnsupported);
  EXPECT_EQ(made.status().message(),
            "ncclCommInitRankConfig: ncclInvalidUsage (5), fake error; NCCL's last error: the fake was "
            "scripted to");
  EXPECT_EQ(library->alive(), 0);
}

TEST_F(NcclCommunicator, a_rank_outside_the_world_is_refused_before_nccl_is_called) {
  for (const Rank rank : {-1, 2}) {
    const auto made =
        Communicator::init(resources(), {make_unique_id(library.api()).value(), rank, 2}, {}, soon());
    EXPECT_EQ(made.status().code(), Code::kInvalidArgument);
  }
}

TEST_F(NcclCommunicator, a_wrong_argument_that_had_no_effect_leaves_it_good) {
  const auto communicator = alone();
  library->fail_next("AllReduce", 4, 0);
  const Status refused = allreduce(*communicator);
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_EQ(refused.message(),
            "ncclAllReduce: ncclInvalidArgument (4), invalid argument; NCCL's last error: the fake was "
            "scripted to");
  EXPECT_EQ(communicator->state(), State::kReady);
  EXPECT_TRUE(allreduce(*communicator).is_ok());
  EXPECT_TRUE(communicator->close(soon()).is_ok());
}

TEST_F(NcclCommunicator, a_wrong_argument_that_nccl_keeps_as_its_error_makes_it_fail) {
  const auto communicator = alone();
  library->fail_next("AllReduce", 4, 1);
  EXPECT_EQ(allreduce(*communicator).code(), Code::kInvalidArgument);
  EXPECT_EQ(communicator->state(), State::kFailed);
  EXPECT_EQ(communicator->close(soon()).code(), Code::kInvalidArgument);  // aborted, with the cause
  EXPECT_EQ(communicator->state(), State::kDead);
}

TEST_F(NcclCommunicator, every_other_code_makes_it_fail_and_the_first_cause_stays) {
  const std::array<std::pair<int, Code>, 6> codes = {{{1, Code::kSystem},
                                                      {2, Code::kSystem},
                                                      {3, Code::kSystem},
                                                      {5, Code::kUnsupported},
                                                      {6, Code::kPeerFailure},
                                                      {8, Code::kTimeout}}};
  for (const auto& [number, code] : codes) {
    for (const char* const call : {"AllReduce", "GroupEnd", "GroupStart"}) {
      const auto communicator = alone();
      library->fail_next(call, number, 0);
      EXPECT_EQ(allreduce(*communicator).code(), code) << call << " " << number;
      EXPECT_EQ(communicator->state(), State::kFailed);
      const Status later = allreduce(*communicator);
      EXPECT_EQ(later.code(), code);
      EXPECT_NE(later.message().find("the NCCL communicator is failed: nccl" + std::string(call)),
                std::string::npos)
          << later.message();
      EXPECT_TRUE(communicator->abort(later).is_ok());
      EXPECT_EQ(communicator->state(), State::kDead);
    }
  }
  EXPECT_EQ(library->alive(), 0);
}

TEST_F(NcclCommunicator, an_asynchronous_error_is_found_by_check) {
  const auto communicator = alone();
  void* comm = nullptr;
  library->last_comm(&comm);
  library->async_error(comm, 6);
  const Status found = communicator->check();
  EXPECT_EQ(found.code(), Code::kPeerFailure);
  EXPECT_NE(found.message().find("issued earlier: ncclRemoteError (6)"), std::string::npos);
  EXPECT_EQ(communicator->state(), State::kFailed);
  EXPECT_EQ(communicator->cause().message(), found.message());
  EXPECT_TRUE(communicator->abort(found).is_ok());
}

TEST_F(NcclCommunicator, joining_that_fails_at_any_step_leaves_nothing) {
  for (const char* const step : {"CommInitRankConfig", "CommUserRank", "CommSplit", "CommCount"}) {
    library->fail_next(step, 2, 0);
    const auto made = init_with();
    EXPECT_EQ(made.status().code(), Code::kSystem) << step;
    EXPECT_NE(made.status().message().find(step), std::string::npos) << made.status().message();
    EXPECT_EQ(library->alive(), 0) << step << "\n" << library->record();
  }
}

TEST_F(NcclCommunicator, is_good_though_what_it_was_split_from_did_not_end_well) {
  for (const char* const step : {"CommFinalize", "CommDestroy"}) {
    library->fail_next(step, 2, 0);
    const auto made = alone();
    EXPECT_TRUE(allreduce(*made).is_ok()) << step;
    EXPECT_TRUE(made->close(soon()).is_ok()) << step;
  }
}

TEST_F(NcclCommunicator, a_call_that_never_settles_ends_at_its_deadline) {
  library->never_blocks(1);
  const auto communicator = alone();
  library->hang_calls(1);
  clock.step(1s);
  const TimePoint deadline = soon().deadline.when();
  const Status late = allreduce(*communicator);
  clock.step(0s);
  EXPECT_GE(clock.now(), deadline);
  EXPECT_LE(clock.now(), deadline + 1s);
  EXPECT_EQ(late.code(), Code::kTimeout);
  EXPECT_NE(late.message().find("ncclGroupEnd: NCCL was still at it (ncclInProgress)"), std::string::npos);
  EXPECT_EQ(communicator->close(soon()).code(), Code::kTimeout);
  EXPECT_EQ(communicator->state(), State::kDead);
  EXPECT_EQ(library->alive(), 0);
}

TEST_F(NcclCommunicator, ctrl_c_and_the_groups_end_end_a_wait_too) {
  library->never_blocks(1);
  library->hang_calls(1);
  const std::function<bool()> pressed = [] { return true; };
  const std::atomic<uint32_t> ended{1};
  const WaitContext contexts[] = {{clock.in(60), nullptr, &pressed}, {clock.in(60), &ended}};
  const Code codes[] = {Code::kInterrupted, Code::kAborted};
  for (int i = 0; i < 2; ++i) {
    const auto communicator = alone();
    const Status status = communicator->grouped(contexts[i], [&](Issue& issue) {
      issue.took("ncclAllReduce", issue.api().all_reduce(&word, &word, 1, DataType::kInt32, RedOp::kSum,
                                                         issue.comm(), nullptr));
    });
    EXPECT_EQ(status.code(), codes[i]) << status.message();
    EXPECT_TRUE(communicator->abort(status).is_ok());
  }
}

TEST_F(NcclCommunicator, an_abort_ends_a_call_stuck_inside_nccl_and_nothing_is_issued_any_more) {
  const auto communicator = alone();
  library->hang_calls(1);
  Status ended;
  std::thread issues([&] { ended = allreduce(*communicator); });
  wait_for_a_stuck_call();
  EXPECT_TRUE(communicator->abort(Status(Code::kPeerFailure, "rank 3 died")).is_ok());
  issues.join();
  EXPECT_EQ(ended.code(), Code::kAborted);
  EXPECT_NE(ended.message().find("rank 3 died"), std::string::npos);
  EXPECT_EQ(allreduce(*communicator).code(), Code::kPeerFailure);
  EXPECT_EQ(library.calls_of_newest(), "child(0/1) [AllReduce] Abort");
}

TEST_F(NcclCommunicator, an_abort_in_the_middle_of_a_group_keeps_the_rest_of_it_back) {
  const auto communicator = alone();
  std::thread aborts;
  const Status ended = communicator->grouped(soon(), [&](Issue& issue) {
    const auto call = [&] {
      return issue.took("ncclAllReduce", issue.api().all_reduce(&word, &word, 1, DataType::kInt32,
                                                                RedOp::kSum, issue.comm(), nullptr));
    };
    EXPECT_TRUE(call());
    aborts = std::thread([&] { (void)communicator->abort(Status(Code::kPeerFailure, "rank 3 died")); });
    while (communicator->state() != State::kAborting) std::this_thread::yield();
    EXPECT_FALSE(call());
  });
  aborts.join();
  EXPECT_EQ(ended.code(), Code::kAborted);
  EXPECT_EQ(communicator->state(), State::kDead);
}

TEST_F(NcclCommunicator, an_abort_ends_the_wait_of_another_thread) {
  library->never_blocks(1);
  const auto communicator = alone();
  library->hang_calls(1);
  Status ended;
  std::thread issues([&] { ended = allreduce(*communicator); });
  while (library.calls_of_newest().find("[AllReduce]") == std::string::npos) std::this_thread::yield();
  EXPECT_TRUE(communicator->abort(Status(Code::kPeerFailure, "rank 3 died")).is_ok());
  issues.join();
  EXPECT_EQ(ended.code(), Code::kAborted);
  EXPECT_NE(ended.message().find("rank 3 died"), std::string::npos);
  EXPECT_EQ(communicator->cause().message(), "rank 3 died");
  EXPECT_EQ(library.calls_of_newest(), "child(0/1) [AllReduce] Abort");
}

TEST_F(NcclCommunicator, an_abort_that_does_not_return_is_reported_as_leaked) {
  const auto communicator = alone();
  library->block_next("CommAbort");
  clock.step(1s);
  const Status leaked = communicator->abort(Status(Code::kPeerFailure, "rank 3 died"));
  EXPECT_EQ(leaked.code(), Code::kTimeout);
  EXPECT_NE(leaked.message().find("leaked"), std::string::npos);
  EXPECT_EQ(communicator->state(), State::kLeaked);
  while (library->blocked() == 0) std::this_thread::yield();
  library->release();
  while (communicator->state() != State::kDead) std::this_thread::yield();  // the abort returned, but late
}

TEST_F(NcclCommunicator, a_thread_that_is_stuck_inside_nccl_holds_up_no_other) {
  const auto communicator = alone();
  library->block_next("GroupEnd");
  std::thread stuck([&] { (void)allreduce(*communicator); });
  wait_for_a_stuck_call();
  EXPECT_TRUE(communicator->check().is_ok());  // the stuck thread will report any error
  clock.step(1s);
  EXPECT_EQ(allreduce(*communicator).code(), Code::kTimeout);
  clock.step(0s);
  EXPECT_TRUE(communicator->abort(Status(Code::kTimeout, "late")).is_ok());
  stuck.join();
  EXPECT_EQ(communicator->state(), State::kDead);
  EXPECT_EQ(library->alive(), 0);
}

TEST_F(NcclCommunicator, a_close_that_is_stuck_inside_nccl_ends_at_its_deadline) {
  Resources patient = resources();
  patient.abort_wait_limit_s = 1e8;  // the test's clock runs fast, so this is practically no limit
  for (const char* const call : {"CommFinalize", "CommDestroy"}) {
    const auto communicator =
        Communicator::init(patient, {make_unique_id(library.api()).value(), 0, 1}, {}, soon()).value();
    library->block_next(call);
    std::thread hurries([&] {
      wait_for_a_stuck_call();
      clock.advance(100s);
    });
    EXPECT_EQ(communicator->close(soon()).code(), Code::kTimeout) << call;
    hurries.join();
    library->release();
    while (library->blocked() != 0) std::this_thread::yield();
  }
}

TEST_F(NcclCommunicator, a_failing_finalize_becomes_an_abort) {
  const auto communicator = alone();
  library->fail_next("CommFinalize", 2, 0);
  EXPECT_EQ(communicator->close(soon()).code(), Code::kSystem);
  EXPECT_EQ(library.calls_of_newest(), "child(0/1) Abort");
  EXPECT_EQ(communicator->state(), State::kDead);
}

TEST_F(NcclCommunicator, several_are_aborted_in_one_group_from_2_22_on_and_apart_before) {
  FakeLibrary old(FAKE_NCCL_21803);
  for (FakeLibrary* const each : {&library, &old}) {
    Resources with = resources();
    with.api = each->shared_api();
    std::vector<std::unique_ptr<Communicator>> made;
    std::vector<Communicator*> all;
    for (int i = 0; i < 3; ++i) {
      made.push_back(
          Communicator::init(with, {make_unique_id(each->api()).value(), 0, 1}, {}, soon()).value());
      all.push_back(made.back().get());
    }
    EXPECT_TRUE(Communicator::abort_all(all, Status(Code::kPeerFailure, "rank 3 died")).is_ok());
    EXPECT_EQ(each->calls_of_newest(), each == &old ? "child(0/1) Abort" : "child(0/1) [Abort]");
    EXPECT_EQ((*each)->alive(), 0);
    EXPECT_TRUE(Communicator::abort_all(all, Status()).is_ok());  // the second call does nothing
  }
}

TEST_F(NcclCommunicator, an_abort_that_nccl_refuses_is_reported) {
  const auto communicator = alone();
  library->fail_next("CommAbort", 3, 0);
  const Status why = communicator->abort(Status(Code::kTimeout, "late"));
  EXPECT_EQ(why.code(), Code::kSystem);
  EXPECT_NE(why.message().find("ncclCommAbort: ncclInternalError (3)"), std::string::npos);
}

TEST_F(NcclCommunicator, one_that_was_not_closed_is_left_open_with_a_warning) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const Fd reader(ends[0]), writer(ends[1]);
  log_fd = writer.get();
  { const auto forgotten = init_with({"forgotten"}).value(); }
  std::array<char, 256> text = {};
  ASSERT_GT(::read(reader.get(), text.data(), text.size() - 1), 0);
  EXPECT_NE(std::string(text.data()).find("(ready) was neither closed nor aborted"), std::string::npos);
  EXPECT_EQ(library.calls_of_newest(), "child(0/1)");
  EXPECT_EQ(library->alive(), 1);
}

TEST_F(NcclCommunicator, own_operations_go_before_it_does) {
  const auto communicator = alone();
  const float factor = 0.5;
  const RedOp one = communicator->make_scaled_sum(DataType::kFloat32, &factor, soon()).value();
  const RedOp two = communicator->make_scaled_sum(DataType::kFloat32, &factor, soon()).value();
  EXPECT_NE(one, two);
  EXPECT_TRUE(communicator->destroy_op(one, soon()).is_ok());
  EXPECT_EQ(communicator->destroy_op(one, soon()).code(), Code::kInvalidArgument);
  EXPECT_TRUE(communicator->close(soon()).is_ok());
  EXPECT_EQ(library.calls_of_newest(), "child(0/1) CreateOp CreateOp DestroyOp DestroyOp Finalize Destroy");
}

// Ranks are threads here: an init and a split need all of them.
class NcclRanks : public NcclCommunicator {
 protected:
  using Body = std::function<void(Communicator&)>;
  void run(Rank size, const Body& body) {
    const UniqueId id = make_unique_id(library.api()).value();
    std::vector<std::thread> threads;
    for (Rank rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        auto made = Communicator::init(resources(), {id, rank, size}, {}, soon());
        ASSERT_TRUE(made.is_ok()) << made.status().message();
        body(*made.value());
      });
    }
    for (std::thread& each : threads) each.join();
  }
};

TEST_F(NcclRanks, an_init_waits_until_all_ranks_are_there) {
  library->init_waits_for_all(1);
  run(3, [&](Communicator& each) { EXPECT_TRUE(each.close(soon()).is_ok()); });
  EXPECT_EQ(library->alive(), 0);
}

TEST_F(NcclRanks, a_split_gives_each_color_its_own_and_nothing_to_those_without) {
  run(4, [&](Communicator& parent) {
    const int color = parent.rank() == 2 ? kNoColor : parent.rank() % 2;
    auto child = parent.split(color, -parent.rank(), {"half"}, soon());
    ASSERT_TRUE(child.is_ok()) << child.status().message();
    if (color == kNoColor) {
      EXPECT_EQ(child.value(), nullptr);
    } else {
      const bool odd = color == 1;
      EXPECT_EQ(child.value()->size(), odd ? 2 : 1);
      EXPECT_EQ(child.value()->rank(), odd && parent.rank() == 1 ? 1 : 0);  // in descending order of ranks
      EXPECT_EQ(child.value()->state(), State::kReady);
      EXPECT_TRUE(child.value()->close(soon()).is_ok());
    }
    EXPECT_TRUE(parent.close(soon()).is_ok());
  });
  EXPECT_EQ(library->alive(), 0);
}

TEST_F(NcclCommunicator, a_split_that_others_do_not_make_ends_at_the_deadline) {
  const auto ranks = pair();
  Communicator &parent = *ranks[0], &other = *ranks[1];
  std::thread hurries([&] {
    wait_for_a_stuck_call();
    clock.advance(100s);
  });
  const auto child = parent.split(0, 0, {}, soon());
  hurries.join();
  EXPECT_EQ(child.status().code(), Code::kTimeout);
  EXPECT_EQ(parent.state(), State::kFailed);
  EXPECT_EQ(parent.close(soon()).code(), Code::kTimeout);
  EXPECT_TRUE(other.abort(Status()).is_ok());
  EXPECT_EQ(library->alive(), 0);
}

TEST_F(NcclCommunicator, a_split_that_nccl_refuses_makes_it_fail_unless_it_had_no_effect) {
  for (const auto& [number, code, state] :
       {std::tuple{2, Code::kSystem, State::kFailed}, std::tuple{4, Code::kInvalidArgument, State::kReady}}) {
    const auto parent = alone();
    library->fail_next("CommSplit", number, 0);
    const Status refused = parent->split(0, 0, {}, soon()).status();
    EXPECT_EQ(refused.code(), code) << refused.message();
    EXPECT_EQ(parent->state(), state);
    EXPECT_TRUE(parent->abort(refused).is_ok());
  }
  EXPECT_EQ(library->alive(), 0);
}

TEST_F(NcclCommunicator, an_abort_of_the_parent_ends_a_split_that_waits_for_others) {
  const auto ranks = pair();
  Communicator &parent = *ranks[0], &other = *ranks[1];
  Status ended;
  std::thread splits([&] { ended = parent.split(0, 0, {}, soon()).status(); });
  wait_for_a_stuck_call();
  EXPECT_TRUE(parent.abort(Status(Code::kPeerFailure, "rank 1 died")).is_ok());
  splits.join();
  EXPECT_EQ(ended.code(), Code::kAborted);
  EXPECT_NE(ended.message().find("rank 1 died"), std::string::npos);
  EXPECT_TRUE(other.abort(Status()).is_ok());
  EXPECT_EQ(library->alive(), 0);
}

TEST_F(NcclRanks, a_split_that_takes_long_is_settled_before_the_child_is_used) {
  library->never_blocks(1);
  library->in_progress(100);
  run(2, [&](Communicator& parent) {
    auto child = parent.split(0, parent.rank(), {}, soon());
    ASSERT_TRUE(child.is_ok()) << child.status().message();
    EXPECT_TRUE(child.value()->close(soon()).is_ok());
    EXPECT_TRUE(parent.close(soon()).is_ok());
  });
  EXPECT_EQ(library->alive(), 0);
}

TEST_F(NcclRanks, shrinking_excludes_dead_ranks) {
  run(3, [&](Communicator& parent) {
    if (parent.rank() == 1) {
      EXPECT_TRUE(parent.abort(Status(Code::kInterrupted, "dead")).is_ok());
      return;
    }
    const Rank dead[] = {1};
    auto child = parent.shrink(dead, {}, soon());
    ASSERT_TRUE(child.is_ok()) << child.status().message();
    EXPECT_EQ(child.value()->size(), 2);
    EXPECT_EQ(child.value()->rank(), parent.rank() / 2);
    EXPECT_TRUE(child.value()->close(soon()).is_ok());
    EXPECT_TRUE(parent.abort(Status()).is_ok());
  });
}

TEST_F(NcclCommunicator, one_that_has_failed_shrinks_where_nccl_can_and_says_what_else_to_do) {
  const Rank dead[] = {1};
  const auto slow = pair(), gone = pair();
  Communicator &late = *slow[0], &lost = *gone[0];
  library->fail_next("GroupEnd", 8, 0);
  EXPECT_EQ(allreduce(late).code(), Code::kTimeout);
  const auto child = late.shrink(dead, {}, soon());
  ASSERT_TRUE(child.is_ok()) << child.status().message();
  EXPECT_EQ(child.value()->size(), 1);
  EXPECT_TRUE(child.value()->close(soon()).is_ok());
  EXPECT_EQ(late.state(), State::kFailed);  // this does not repair the parent
  EXPECT_NE(std::string(library->record()).find("child(0/2) [AllReduce] Shrink(abort)"), std::string::npos);

  library->fail_next("GroupEnd", 6, 1);
  EXPECT_EQ(allreduce(lost).code(), Code::kPeerFailure);
  const Status refused = lost.shrink(dead, {}, soon()).status();
  EXPECT_EQ(refused.code(), Code::kUnsupported);
  EXPECT_NE(refused.message().find("abort it and init a new one"), std::string::npos);
  EXPECT_EQ(lost.cause().code(), Code::kPeerFailure);
  for (const auto& each : {slow[0].get(), slow[1].get(), gone[0].get(), gone[1].get()})
    EXPECT_TRUE(each->abort(Status()).is_ok());
}

TEST(NcclShrink, an_old_library_says_since_when_and_what_to_do_instead) {
  StepClock clock;
  FakeLibrary old(FAKE_NCCL_21903);
  const WaitContext soon{clock.in(60)};
  const auto communicator =
      Communicator::init({old.shared_api(), &clock}, {make_unique_id(old.api()).value(), 0, 1}, {}, soon)
          .value();
  const Rank dead[] = {0};
  const Status refused = communicator->shrink(dead, {}, soon).status();
  EXPECT_EQ(refused.code(), Code::kUnsupported);
  EXPECT_NE(refused.message().find("came with 2.27.3"), std::string::npos);
  EXPECT_NE(refused.message().find("init a new one"), std::string::npos);
  EXPECT_EQ(communicator->state(), State::kReady);
  EXPECT_TRUE(communicator->close(soon).is_ok());
}

TEST(NcclPoll, asks_at_once_at_first_and_every_5_ms_at_last) {
  EXPECT_EQ(pause_before(0).count(), 0);
  EXPECT_EQ(pause_before(64).count(), 100);
  EXPECT_EQ(pause_before(68).count(), 200);
  EXPECT_EQ(pause_before(1000000).count(), 5000);
}

}  // namespace
}  // namespace pc::nccl::testing
