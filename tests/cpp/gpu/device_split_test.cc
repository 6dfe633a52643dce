// Groups that are split from a group which has joined by NCCL: their communicators come from its
// own, or both end on every rank. FAKES of the driver and of NCCL.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <future>
#include <latch>
#include <sstream>
#include <thread>
#include <vector>

#include "device_world.h"
#include "gpu/device_groups.h"
#include "polling.h"

namespace pc::testing {
namespace {

class SplitWorld : public DeviceWorld {
 protected:
  // One rank, and its calls on GPUs.
  struct Here {
    Runtime& runtime;
    Communicator& world;
    DeviceGroups& gpus;
    Rank rank() const { return world.rank(); }
    // As Python's init(backend="nccl").
    Status join() const { return gpus.of(world, world.rank(), nullptr, kLong, true).status(); }
  };
  // Aborts what is left when the body has ended, so that nothing is leaked.
  Outcomes run_here(Rank size, const std::function<Status(const Here&)>& body, bool shut_down = true) {
    const auto on_rank = [&](Runtime& runtime, Communicator& world) -> Status {
      DeviceGroups::Options options;
      options.driver.path = FAKE_CUDA;
      options.nccl = nccl::testing::named(FAKE_NCCL_22809);
      options.log = Logger(LogLevel::kError, world.rank(), -1);
      options.strict = strict_;
      DeviceGroups gpus(runtime, std::move(options));
      const Status ended = body({runtime, world, gpus});
      gpus.abort(Status(Code::kAborted, "the test is over"));
      fake_.drain_device(world.rank());
      return ended;
    };
    return run(size, on_rank, shut_down);
  }

  bool strict_ = false;  // strict checking: a call does not complete before all ranks have made it

  // Does the work of pycollective/runtime/groups.py. Returns the group of these ranks, or null if
  // this rank is not one of them.
  static Result<Communicator*> agree_on(const Here& here, const std::vector<Rank>& ranks) {
    std::vector<int32_t> says(static_cast<std::size_t>(here.world.size()));
    const int32_t can = here.gpus.can_split(here.world) ? 1 : 0;
    Request exchange;
    exchange.collective = Collective::kAllgather;
    exchange.in = {reinterpret_cast<const std::byte*>(&can), 1, DType::kI32};
    exchange.out = {reinterpret_cast<std::byte*>(says.data()), says.size(), DType::kI32};
    PC_TRY(here.world.run(exchange));
    if (std::count(says.begin(), says.end(), 1) != here.world.size()) return wrong("not all can split");
    if (std::count(ranks.begin(), ranks.end(), here.rank()) == 0) return static_cast<Communicator*>(nullptr);
    return here.runtime.make_group(static_cast<uint32_t>(here.runtime.group_count() + 1), ranks);
  }
  static Result<Communicator*> cut(const Here& here, const std::vector<Rank>& ranks) {
    PC_ASSIGN_OR_RETURN(Communicator* const child, agree_on(here, ranks));
    PC_TRY(here.gpus.split(here.world, child, kLong));
    return child;
  }
  static Result<std::shared_ptr<GpuWork>> begin(const Here& here, Communicator& group,
                                                const cuda::DeviceCall& what) {
    PC_ASSIGN_OR_RETURN(const auto backend, here.gpus.of(group, here.rank(), nullptr, kLong, true));
    UserCall made;
    made.request = what.request;
    return backend->begin(made, kLong);
  }
  static Status call(const Here& here, Communicator& group, const cuda::DeviceCall& what) {
    PC_ASSIGN_OR_RETURN(const auto started, begin(here, group, what));
    return started->wait(-1);
  }
  static Status sum(const Here& here, Communicator& group, Array& x, float wanted) {
    PC_TRY(call(here, group, x.sum()));
    return expect(x, wanted);
  }

  // Returns the recorded NCCL calls, one line for each communicator that is used for calls, in
  // alphabetical order.
  std::vector<std::string> record() const {
    std::istringstream lines(nccl_->record());
    std::vector<std::string> all;
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with("child")) all.push_back(line);
    std::sort(all.begin(), all.end());
    return all;
  }
  void await(const std::string& call) const {
    while (std::string(nccl_->record()).find(call) == std::string::npos) std::this_thread::yield();
  }
};
using Lines = std::vector<std::string>;
INSTANTIATE_TEST_SUITE_P(Over, SplitWorld, ::testing::Values(Over::kInproc, Over::kTcp, Over::kShared),
                         [](const ::testing::TestParamInfo<Over>& each) { return name_of(each.param); });

TEST_P(SplitWorld, new_groups_have_communicators_from_that_of_their_parent_before_their_first_call) {
  const Outcomes outcomes = run_here(4, [&](const Here& here) -> Status {
    PC_TRY(here.join());
    PC_ASSIGN_OR_RETURN(Array x, array_of(here.rank()));
    PC_TRY(begin(here, here.world, x.sum()).status());  // and the split waits for it
    const Rank color = here.rank() % 2;
    PC_ASSIGN_OR_RETURN(Communicator* const half, cut(here, {color, static_cast<Rank>(color + 2)}));
    PC_TRY(expect(x, 10));
    PC_TRY(sum(here, *half, x, 20));
    PC_TRY(sum(here, here.world, x, 80));
    return here.gpus.close(kLong);
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
  const std::string used = " [AllReduce] Finalize Destroy";
  Lines wanted = {"child(0/2)" + used, "child(0/2)" + used, "child(1/2)" + used, "child(1/2)" + used};
  for (const int rank : {0, 1, 2, 3})
    wanted.push_back("child(" + std::to_string(rank) + "/4) [AllReduce] Split(" + std::to_string(rank % 2) +
                     ")" + used);
  std::sort(wanted.begin(), wanted.end());
  EXPECT_EQ(record(), wanted);
}

TEST_P(SplitWorld, a_rank_in_no_new_group_or_alone_in_one_joins_the_split_and_gets_no_child) {
  const Outcomes outcomes = run_here(4, [&](const Here& here) -> Status {
    PC_TRY(here.join());
    PC_ASSIGN_OR_RETURN(Array x, array_of(here.rank()));
    const std::vector<Rank> pair = {3, 1};  // in another order than in the world
    PC_ASSIGN_OR_RETURN(Communicator* const group, cut(here, here.rank() == 0 ? std::vector<Rank>{0} : pair));
    if (here.rank() == 0) PC_TRY(sum(here, *group, x, 1));  // uses a unique id of its own
    if (here.rank() == 2 && group != nullptr) return wrong("rank 2 is in no group");
    if (here.rank() % 2 == 1) {
      cuda::DeviceCall broadcast = x.sum();
      broadcast.request.collective = Collective::kBroadcast;
      broadcast.request.root = 0;
      PC_TRY(call(here, *group, broadcast));
      PC_TRY(expect(x, 4));  // rank 3 is the group's first rank
    }
    return here.gpus.close(kLong);
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
  const std::string end = " Finalize Destroy", used = " [Broadcast]" + end;
  EXPECT_EQ(record(), (Lines{"child(0/1) [AllReduce]" + end, "child(0/2)" + used,
                             "child(0/4) Split(-1)" + end, "child(1/2)" + used, "child(1/4) Split(3)" + end,
                             "child(2/4) Split(-1)" + end, "child(3/4) Split(3)" + end}));
}

TEST_P(SplitWorld, a_group_that_has_not_joined_or_has_failed_cannot_be_split) {
  const Outcomes outcomes = run_here(2, [&](const Here& here) -> Status {
    if (here.gpus.can_split(here.world)) return wrong("before it has joined");
    PC_TRY(here.join());
    if (!here.gpus.can_split(here.world)) return wrong("though it has joined");
    PC_ASSIGN_OR_RETURN(Array x, array_of(here.rank()));
    cuda::DeviceCall odd = x.sum();
    if (here.rank() == 1) odd.request.op.op = ReduceOp::kProd;
    if (call(here, here.world, odd).code() != Code::kMismatch) return wrong("no mismatch");
    if (here.gpus.can_split(here.world)) return wrong("though it has failed");
    return here.world.resync();
  });
  nccl_->reset();  // the fake has detected the mismatch too
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(SplitWorld, the_death_of_a_rank_in_the_middle_ends_parent_and_child_on_all_others) {
  const Outcomes outcomes = run_here(
      3,
      [&](const Here& here) -> Status {
        PC_TRY(here.join());
        PC_ASSIGN_OR_RETURN(Communicator* const child, agree_on(here, {0, 1, 2}));
        PC_TRY(host_sum(here.world));  // all ranks have agreed
        if (here.rank() == 2) return Status::ok();
        const Status split = here.gpus.split(here.world, child, kLong);
        PC_ASSIGN_OR_RETURN(Array x, array_of(here.rank()));
        if (here.gpus.can_split(here.world)) return wrong("the parent goes on");
        if (call(here, here.world, x.sum()).is_ok()) return wrong("a call of the parent goes on");
        if (host_sum(*child).is_ok()) return wrong("the child goes on");
        return split;
      },
      false);
  for (const std::size_t rank : {0UL, 1UL})
    EXPECT_TRUE(outcomes[rank].code() == Code::kPeerFailure || outcomes[rank].code() == Code::kPeerExited)
        << text_of(outcomes);
  EXPECT_EQ(nccl_->alive(), 0);
}

TEST_P(SplitWorld, a_split_that_stays_in_progress_ends_at_its_deadline_on_all_ranks) {
  std::promise<void> late, all_have_errors;
  const Outcomes outcomes = run_here(
      2,
      [&](const Here& here) -> Status {
        PC_TRY(here.join());
        PC_ASSIGN_OR_RETURN(Communicator* const child, agree_on(here, {0, 1}));
        if (here.rank() == 1) late.get_future().wait();
        const Status split = here.gpus.split(here.world, child, here.rank() == 0 ? 0.2 : kLong);
        if (here.rank() == 0) {
          late.set_value();
          // its runtime stays alive, so that the other rank sees no death
          all_have_errors.get_future().wait();
        } else {
          all_have_errors.set_value();
        }
        return split;
      },
      false);
  EXPECT_EQ(outcomes[0].code(), Code::kTimeout) << text_of(outcomes);
  EXPECT_TRUE(has(outcomes[0], "ncclCommSplit: NCCL was still at it")) << text_of(outcomes);
  EXPECT_EQ(outcomes[1].code(), Code::kPeerExited) << text_of(outcomes);
  EXPECT_EQ(nccl_->alive(), 0);
}

// An immediate refusal by NCCL leaves the other ranks alone in the split. A later failure leaves
// them with a child.
TEST_P(SplitWorld, an_nccl_error_on_one_rank_ends_the_new_group_on_all_before_the_deadline) {
  for (const char* const fails : {"CommSplit", "CommUserRank"}) {
    std::latch all_joined(3), all_ended(3);
    const Outcomes outcomes = run_here(
        3,
        [&](const Here& here) -> Status {
          PC_TRY(here.join());
          PC_ASSIGN_OR_RETURN(Communicator* const child, agree_on(here, {0, 1, 2}));
          all_joined.arrive_and_wait();
          if (here.rank() == 0) nccl_->fail_next(fails, 2, 0);
          PC_TRY(host_sum(here.world));
          Status ended = here.gpus.split(here.world, child, kLong);
          if (ended.is_ok()) ended = host_sum(*child);
          all_ended.arrive_and_wait();  // they stay alive until all have their errors
          return ended;
        },
        false);
    std::size_t refused = 0;
    for (const Status& each : outcomes) {
      EXPECT_FALSE(each.is_ok()) << fails << "\n" << text_of(outcomes);
      EXPECT_NE(each.code(), Code::kTimeout) << fails << "\n" << text_of(outcomes);
      refused += has(each, "ncclSystemError") ? 1 : 0;
    }
    EXPECT_GE(refused, 1U) << fails << "\n" << text_of(outcomes);
    // An abort may continue after the error.
    const Deadline deadline = Deadline::after(kLong);
    poll_until([&] { return nccl_->alive() == 0 || deadline.expired(); });
    EXPECT_EQ(nccl_->alive(), 0) << fails;
  }
}

TEST_P(SplitWorld, the_end_of_the_world_ends_a_split_that_waits) {
  std::promise<void> ended, there;
  const Outcomes outcomes = run_here(
      2,
      [&](const Here& here) -> Status {
        PC_TRY(here.join());
        PC_ASSIGN_OR_RETURN(Communicator* const child, agree_on(here, {0, 1}));
        if (here.rank() == 1) {
          there.set_value();
          ended.get_future().wait();
          return Status::ok();
        }
        std::thread aborts([&] {
          await("child(0/2) Split");
          here.gpus.abort(Status(Code::kAborted, "this program has had enough"));
        });
        const Status split = here.gpus.split(here.world, child, kLong);
        aborts.join();
        there.get_future().wait();  // rank 1 knows which group it is
        ended.set_value();
        return has(split, "had enough") ? Status::ok() : wrong(split.to_string());
      },
      false);
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(SplitWorld, a_rank_that_leaves_a_split_before_it_begins_ends_it_for_all) {
  strict_ = true;
  bool parent_goes_on = true;
  std::promise<void> has_left, all_have_errors;
  const Outcomes outcomes = run_here(
      2,
      [&](const Here& here) -> Status {
        PC_TRY(here.join());
        PC_ASSIGN_OR_RETURN(Communicator* const child, agree_on(here, {0, 1}));
        PC_TRY(host_sum(here.world));
        if (here.rank() == 1) {
          const Status split = here.gpus.split(here.world, child, kLong);
          has_left.get_future().wait();
          all_have_errors.set_value();
          return split;
        }
        PC_ASSIGN_OR_RETURN(Array x, array_of(0));
        const std::size_t calls = here.runtime.last_calls().size();
        auto other =
            std::async(std::launch::async, [&] { return begin(here, here.world, x.sum()).status(); });
        while (here.runtime.last_calls().size() == calls) std::this_thread::yield();  // it waits for rank 1
        const Status split = here.gpus.split(here.world, child, 0.05);
        parent_goes_on = here.gpus.can_split(here.world) || child->alive().is_ok();
        has_left.set_value();
        all_have_errors.get_future().wait();
        other.wait();
        return split;
      },
      false);
  EXPECT_EQ(outcomes[0].code(), Code::kTimeout) << text_of(outcomes);
  EXPECT_NE(outcomes[1].code(), Code::kOk) << text_of(outcomes);
  EXPECT_NE(outcomes[1].code(), Code::kTimeout) << text_of(outcomes);
  EXPECT_FALSE(parent_goes_on);
}

}  // namespace
}  // namespace pc::testing
