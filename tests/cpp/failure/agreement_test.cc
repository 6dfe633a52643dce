// What ranks report to each other when a call goes wrong, and that the group continues with the
// next call.
#include <gtest/gtest.h>

#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <latch>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "comm/requests.h"
#include "polling.h"

namespace pc::testing {
namespace {

struct Made {
  Collective collective = Collective::kAllreduce;
  DType dtype = DType::kF32;
  std::size_t count = 1000;
  ReduceOp op = ReduceOp::kSum;
  Rank root = 0;
};
Status make(Communicator& group, const Made& made, double timeout_s = -1) {
  Elements x = contribution(made.dtype, made.count, group.rank(), group.size());
  Request request;
  request.collective = made.collective;
  if (made.collective != Collective::kBarrier) {
    request.in = x.view();
    request.out = x.buffer();
    request.op = made.op;
    request.root = made.root;
  }
  return group.run(request, timeout_s);
}

class Agreement : public ::testing::TestWithParam<Over> {
 protected:
  Outcomes run(Rank size, const Body& body) {
    return run_world({.over = GetParam(), .size = size, .timeout_s = kLong}, body);
  }
};
// A message that no rank receives is detected even if calls are not compared. Shared memory has no
// such messages.
class AgreementOfMessages : public Agreement {};
INSTANTIATE_TEST_SUITE_P(Over, AgreementOfMessages, ::testing::Values(Over::kInproc, Over::kTcp),
                         [](const ::testing::TestParamInfo<Over>& each) { return name_of(each.param); });

INSTANTIATE_TEST_SUITE_P(Over, Agreement,
                         ::testing::Values(Over::kInproc, Over::kTcp, Over::kShared, Over::kDomains),
                         [](const ::testing::TestParamInfo<Over>& each) { return name_of(each.param); });

TEST_P(Agreement, where_all_depend_on_all_every_rank_raises_in_that_call_and_the_next_one_is_right) {
  struct Odd {
    Made made;
    const char* difference;
  };
  const std::vector<Odd> odds = {
      {{.dtype = DType::kI32}, "dtype int32 instead of float32"},
      {{.dtype = DType::kF64}, "dtype float64 instead of float32"},
      {{.op = ReduceOp::kMax}, "op max instead of sum"},
      {{.count = 999}, "count 999 instead of 1000"},
      {{.count = 0}, "count 0 instead of 1000"},
      {{.count = 500'000}, "count 500000 instead of 1000"},
      {{.collective = Collective::kBarrier}, "barrier instead of allreduce"},
      {{.collective = Collective::kBroadcast}, "broadcast instead of allreduce"},
      {{.collective = Collective::kReduce}, "reduce instead of allreduce"},
  };
  for (const Rank size : {2, 3, 4, 5}) {
    const Outcomes outcomes = run(size, [&](Runtime&, Communicator& group) -> Status {
      for (Rank odd_rank = 0; odd_rank < size; ++odd_rank) {
        for (const Odd& odd : odds) {
          const Status status = make(group, group.rank() == odd_rank ? odd.made : Made{});
          const std::string what = std::string(odd.difference) + " by rank " + std::to_string(odd_rank);
          const bool rooted =
              odd.made.collective == Collective::kBroadcast || odd.made.collective == Collective::kReduce;
          if (rooted && group.rank() == odd_rank && status.is_ok()) {  // its part may be only to send
            PC_TRY(group.resync());
          } else {
            if (status.code() != Code::kMismatch) return unexpected(status, what);
            if (size > 2 &&
                (!has(status, odd.difference) || !has(status, "rank " + std::to_string(odd_rank) + " ")))
              return unexpected(status, what);
            if (size > 2 && status.peer() != (group.rank() == odd_rank ? -1 : odd_rank))
              return unexpected(status, "peer, " + what);
            if (rooted) PC_TRY(group.resync());
          }
          if (const Status next = right_allreduce(group); !next.is_ok())
            return unexpected(next, "after " + what);
        }
      }
      return Status::ok();
    });
    EXPECT_TRUE(all_ok(outcomes)) << "size " << size << "\n" << text_of(outcomes);
  }
}

// Rank 0 ends when it has received what each rank called. The other ranks may see it end before
// they have received as much.
TEST_P(Agreement, a_mismatch_is_named_even_if_a_rank_leaves_as_soon_as_it_has_the_reports) {
  for (int round = 0; round < 20; ++round) {
    const Outcomes outcomes = run(3, [&](Runtime& runtime, Communicator& group) {
      Status status = make(group, Made{.dtype = group.rank() == 1 ? DType::kF64 : DType::kF32});
      if (group.rank() == 0) runtime.abort(Status(Code::kNotInitialized, "this process left"));
      return status;
    });
    for (const Status& each : outcomes) {
      ASSERT_EQ(each.code(), Code::kMismatch) << text_of(outcomes);
      ASSERT_TRUE(has(each, "rank 1 ") && has(each, "made dtype float64 instead of float32"))
          << text_of(outcomes);
    }
  }
}

// Rank 0 reports its interruption and ends without waiting for a response. Rank 1 does not make the
// call, so that the call of the other two cannot complete, and checks that rank 2 is in it before
// rank 0 is interrupted.
TEST_P(Agreement, a_rank_that_is_interrupted_and_exits_at_once_is_named_as_interrupted) {
  for (int round = 0; round < 5; ++round) {
    std::latch interrupted(1);
    std::atomic<bool> pressed = false;
    const WorldOptions world{
        .over = GetParam(), .size = 3, .timeout_s = kLong, .interrupted = [&] { return pressed.load(); }};
    const Outcomes outcomes = run_world(world, [&](Runtime& runtime, Communicator& group) {
      if (group.rank() == 1) {
        std::byte x[8];
        Status seen;
        do {
          seen = group.recv({x, sizeof x, DType::kU8}, 2, 0, 0.15);
        } while (seen.code() == Code::kTimeout && !has(seen, "is in allreduce"));
        pressed = true;
        return interrupted.wait(), Status::ok();
      }
      Status status = make(group, Made{});
      if (group.rank() != 0) return status;
      runtime.abort(Status(Code::kNotInitialized, "this process left"));
      interrupted.count_down();
      return status;
    });
    ASSERT_EQ(outcomes[0].code(), Code::kInterrupted) << text_of(outcomes);
    // In shared memory a rank may first see that rank 0 has closed the group.
    const bool sees_the_close = GetParam() == Over::kShared || GetParam() == Over::kDomains;
    ASSERT_TRUE(outcomes[2].code() == Code::kPeerInterrupted ||
                (sees_the_close && outcomes[2].code() == Code::kPeerExited))
        << text_of(outcomes);
    ASSERT_EQ(outcomes[2].peer(), 0) << text_of(outcomes);
  }
}

TEST_P(Agreement, different_roots_are_found_and_resync_brings_all_back) {
  for (const Collective what : {Collective::kBroadcast, Collective::kReduce}) {
    for (const std::size_t count : {std::size_t{4}, std::size_t{300'000}}) {
      for (const Rank size : {2, 3, 4}) {
        const Outcomes outcomes = run(size, [&](Runtime&, Communicator& group) -> Status {
          for (Rank odd_rank = 0; odd_rank < size; ++odd_rank) {
            const Made mine{.collective = what,
                            .count = count,
                            .root = group.rank() == odd_rank ? (odd_rank + 1) % size : odd_rank};
            const Status status = make(group, mine);
            if (!status.is_ok() && status.code() != Code::kMismatch) return unexpected(status, "in the call");
            PC_TRY(group.resync());
            if (const Status next = right_allreduce(group); !next.is_ok())
              return unexpected(next, "after it");
          }
          return Status::ok();
        });
        EXPECT_TRUE(all_ok(outcomes)) << name_of(what) << " " << count << "\n" << text_of(outcomes);
      }
    }
  }
}

// Collects what the ranks of a world log.
class Warnings {
 public:
  Warnings() {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    reads_ = Fd(ends[0]);
    writes_ = Fd(ends[1]);
    reader_ = std::thread([this] { read(); });
  }
  ~Warnings() {
    writes_.reset();
    reader_.join();
  }
  int fd() const { return writes_.get(); }
  std::string text() {
    const std::lock_guard lock(mutex_);
    return text_;
  }
  bool wait_for(const std::string& part) {
    std::unique_lock lock(mutex_);
    return more_.wait_for(lock, std::chrono::duration<double>(kLong),
                          [&] { return text_.find(part) != std::string::npos; });
  }

 private:
  void read() {
    char bytes[4096];
    for (ssize_t count; (count = ::read(reads_.get(), bytes, sizeof bytes)) > 0;) {
      const std::lock_guard lock(mutex_);
      text_.append(bytes, static_cast<std::size_t>(count));
      more_.notify_all();
    }
  }
  Fd reads_, writes_;
  std::thread reader_;
  std::mutex mutex_;  // guards text_
  std::string text_;
  std::condition_variable more_;
};
std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
  return count;
}

TEST_P(Agreement, groups_with_one_number_and_different_members_do_not_receive_each_others_data) {
  const Outcomes outcomes = run(3, [](Runtime& runtime, Communicator& world) -> Status {
    const Rank other = world.rank() == 2 ? 2 : 1;
    PC_ASSIGN_OR_RETURN(Communicator* const group, runtime.make_group(1, {0, other}));
    const Status ended = make(*group, {.count = 10}, 1);
    PC_TRY(world.resync(kLong));
    if (world.rank() != 2 || !ended.is_ok()) return Status::ok();
    return Status(Code::kSystem, "rank 2 had the data of a group that it is not in");
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(Agreement, what_resync_drops_about_an_earlier_call_is_a_warning) {
  for (const Rank size : {2, 3, 4, 5}) {
    Warnings warnings;
    const WorldOptions world = {
        .over = GetParam(), .size = size, .timeout_s = kLong, .log_fd = warnings.fd()};
    const Outcomes outcomes = run_world(world, [&](Runtime&, Communicator& group) -> Status {
      const Made mine{.collective = Collective::kBroadcast, .count = 4, .root = group.rank() == 1 ? 1 : 0};
      const Status status = make(group, mine);
      PC_TRY(group.resync());
      const std::string prefix = "[rank " + std::to_string(group.rank()) + "] warning: not raised any more";
      if (status.is_ok() && !warnings.wait_for(prefix)) return unexpected(status, "no warning");
      if (const Status next = right_allreduce(group); !next.is_ok()) return unexpected(next, "after it");
      const std::size_t reports = count_of(warnings.text(), prefix) + (status.is_ok() ? 0 : 1);
      return reports == 1 ? Status::ok()
                          : Status(Code::kInternal,
                                   "reported " + std::to_string(reports) + " times; " + status.to_string());
    });
    EXPECT_TRUE(all_ok(outcomes)) << "size " << size << "\n" << text_of(outcomes) << warnings.text();
    EXPECT_NE(warnings.text().find("root 1 instead of 0"), std::string::npos) << warnings.text();
  }
}

TEST_P(Agreement, each_of_several_wrong_calls_is_reported_once) {
  for (const Rank size : {2, 3, 4}) {
    Warnings warnings;
    const WorldOptions world = {
        .over = GetParam(), .size = size, .timeout_s = kLong, .log_fd = warnings.fd()};
    const Outcomes outcomes = run_world(world, [&](Runtime&, Communicator& group) -> Status {
      std::vector<std::string> silent;  // calls that raised no error on this rank
      for (int i = 1; i <= 3; ++i) {
        const Made mine{.collective = Collective::kBroadcast, .count = 4, .root = group.rank() == 1 ? 1 : 0};
        Status status = make(group, mine);
        // An error raised before the call begins is about an earlier call.
        while (has(status, "which this rank had completed")) {
          std::erase(silent, "call #" + std::to_string(status.sequence()) + " ");
          status = make(group, mine);
        }
        if (status.is_ok()) silent.push_back("call #" + std::to_string(i) + " ");
      }
      PC_TRY(group.resync());
      const std::string prefix = "[rank " + std::to_string(group.rank()) + "] warning: not raised any more: ";
      for (const std::string& call : silent) {
        if (!warnings.wait_for(prefix + call)) return Status(Code::kInternal, "not informed of " + call);
      }
      PC_TRY(right_allreduce(group));
      const std::size_t reports = count_of(warnings.text(), prefix);
      return reports == silent.size() ? Status::ok()
                                      : Status(Code::kInternal, std::to_string(reports) + " warnings");
    });
    EXPECT_TRUE(all_ok(outcomes)) << "size " << size << "\n" << text_of(outcomes) << warnings.text();
  }
}

TEST_P(AgreementOfMessages, what_resync_drops_is_a_warning_also_where_nothing_is_compared) {
  Warnings warnings;
  const WorldOptions world = {
      .over = GetParam(), .timeout_s = kLong, .check = Check::kOff, .log_fd = warnings.fd()};
  const Outcomes outcomes = run_world(world, [&](Runtime&, Communicator& group) -> Status {
    PC_TRY(make(group, {.collective = Collective::kBroadcast, .count = 4, .root = group.rank()}));
    PC_TRY(group.resync());
    const std::string prefix =
        "[rank " + std::to_string(group.rank()) + "] warning: not raised any more: call #1 ";
    return warnings.wait_for(prefix) ? Status::ok() : Status(Code::kInternal, "no warning");
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes) << warnings.text();
}

TEST_P(Agreement, wrong_calls_do_not_block_shutdown_which_raises_those_not_yet_reported) {
  for (const int wrong : {1, 2, 3}) {
    Warnings warnings;
    const WorldOptions world = {.over = GetParam(), .timeout_s = kLong, .log_fd = warnings.fd()};
    std::array<Status, 2> raised;
    const Outcomes outcomes = run_world(world, [&](Runtime& runtime, Communicator& group) -> Status {
      Status& mine = raised[static_cast<std::size_t>(group.rank())];
      // a call that raises the failure of an earlier call has not been made
      const auto until_made = [&](auto call) {
        for (Status status = call(); !status.is_ok(); status = call()) {
          mine = status;
          if (status.code() != Code::kMismatch) return;
        }
      };
      for (int i = 0; i < wrong; ++i) {
        until_made([&] {
          return make(group, {.collective = Collective::kBroadcast, .count = 4, .root = group.rank()});
        });
      }
      until_made([&] { return right_allreduce(group); });  // raises their failures
      const Status left = runtime.shutdown(Deadline::after(kLong));
      if (!left.is_ok()) mine = left;
      return mine.is_ok() || mine.code() == Code::kMismatch ? Status::ok() : mine;
    });
    EXPECT_TRUE(all_ok(outcomes)) << wrong << "\n" << text_of(outcomes) << warnings.text();
    // One rank may have left before it received the report (docs/limitations.md, late
    // detection of a wrong root).
    EXPECT_TRUE(has(raised[0], "was wrong") || has(raised[1], "was wrong")) << wrong << "\n"
                                                                            << text_of(outcomes);
  }
}

TEST_P(Agreement, a_call_made_after_the_others_gave_up_raises_at_once_and_the_group_goes_on) {
  std::atomic<int> gave_up{0};
  const Outcomes outcomes = run(3, [&](Runtime&, Communicator& group) -> Status {
    for (int round = 1; round <= 3; ++round) {
      if (group.rank() == 2) poll_until([&] { return gave_up.load() >= 2 * round; });
      const Status status = make(group, {.count = 100'000}, group.rank() == 2 ? kLong : kShort);
      if (status.code() != Code::kTimeout) return unexpected(status, "not a timeout");
      if (group.rank() != 2 &&
          (status.peer() != 2 || !has(status, "rank 2 (") || !has(status, "has not made this call")))
        return unexpected(status, "the late rank is not named");
      if (group.rank() == 2 && !has(status, "this rank came to it only after that"))
        return unexpected(status, "the late rank is not informed that it is late");
      if (group.rank() != 2) ++gave_up;
      if (const Status next = right_allreduce(group, 100'000); !next.is_ok())
        return unexpected(next, "after it");
    }
    return Status::ok();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(Agreement, a_recv_that_times_out_says_what_its_peer_is_doing_also_when_a_call_was_given_up) {
  std::atomic<bool> gave_up{false};
  const Outcomes outcomes = run(3, [&](Runtime&, Communicator& group) -> Status {
    Elements x = contribution(DType::kF32, 4, group.rank(), group.size());
    if (group.rank() == 1) {
      const Status early = make(group, {}, kShort);
      if (early.code() != Code::kTimeout) return unexpected(early, "an allreduce alone");
      gave_up = true;
      PC_TRY(group.recv(x.buffer(), 0, 5, kLong, "train.py:7"));
    } else {
      poll_until([&] { return gave_up.load(); });
    }
    if (group.rank() == 0) {
      const Status late = group.recv(x.buffer(), 1, 9, kShort);
      const char* doing = "is in recv from rank 0, tag 5 at train.py:7";
      if (late.code() != Code::kTimeout || !has(late, doing)) return unexpected(late, "where is the peer?");
      PC_TRY(group.send(x.view(), 1, 5));
    }
    PC_TRY(group.resync());
    return right_allreduce(group);
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(Agreement, cancelled_work_ends_on_all_ranks_and_the_group_goes_on) {
  std::promise<void> cancelled;
  const Outcomes outcomes = run(3, [&](Runtime&, Communicator& group) -> Status {
    Elements x = contribution(DType::kF32, 1'000'000, group.rank(), 3);
    // Without this rank the others cannot complete before they are cancelled.
    if (group.rank() == 2) cancelled.get_future().wait();
    Request request;
    request.collective = Collective::kAllreduce;
    request.in = x.view();
    request.out = x.buffer();
    Result<WorkPtr> work = group.launch(request);
    if (group.rank() == 1) {
      if (work.is_ok()) work.value()->cancel();
      cancelled.set_value();
    }
    // A rank that launches after it has received the notice gets the error from launch().
    const Status ended = work.is_ok() ? work.value()->wait({Deadline::after(kLong)}) : work.status();
    if (ended.code() != Code::kAborted) return unexpected(ended, "not cancelled");
    if (group.rank() != 1 && ended.peer() != 1) return unexpected(ended, "which rank cancelled?");
    std::fill(x.bytes.begin(), x.bytes.end(), std::byte{0xee});  // the array belongs to the test again
    return right_allreduce(group, 1'000'000);
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(Agreement, every_rank_is_informed_of_a_death_even_without_messages_to_the_dead_rank) {
  const Outcomes outcomes = run_world({.over = GetParam(), .size = 4, .timeout_s = kLong, .shut_down = false},
                                      [](Runtime&, Communicator& group) -> Status {
                                        Elements x = contribution(DType::kF32, 1, 0, 4);
                                        PC_TRY(group.run(Request{}));
                                        if (group.rank() == 3)
                                          return Status::ok();  // its runtime ends without a goodbye
                                        // No rank waits for rank 3.
                                        return group.recv(x.buffer(), (group.rank() + 1) % 3, 0, -1);
                                      });
  for (Rank rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(outcomes[static_cast<std::size_t>(rank)].code(), Code::kPeerFailure) << text_of(outcomes);
  }
  EXPECT_TRUE(has(outcomes[0], "rank 3") || has(outcomes[1], "rank 3") || has(outcomes[2], "rank 3"))
      << text_of(outcomes);
}

TEST_P(Agreement, a_small_recv_that_gives_up_leaves_no_trace_and_a_large_one_ends_on_both_sides) {
  std::promise<void> small_gave_up, large_gave_up;
  const Outcomes outcomes = run(2, [&](Runtime&, Communicator& group) -> Status {
    std::vector<std::byte> small(8, std::byte{1}), large(1 << 20, std::byte{2}), got(1 << 20);
    const auto view = [](std::vector<std::byte>& bytes) {
      return Buffer{bytes.data(), bytes.size(), DType::kU8};
    };
    if (group.rank() == 0) {
      small_gave_up.get_future().wait();
      PC_TRY(group.send(view(small), 1, 0, -1));
      large_gave_up.get_future().wait();
      const Status ended = group.send(view(large), 1, 0, -1);
      if (ended.code() != Code::kTimeout || !has(ended, "rank 1 gave up"))
        return unexpected(ended, "large send");
      return group.send(view(large), 1, 0, -1);
    }
    std::vector<std::byte> eight(8);
    for (int i = 0; i < 3; ++i) {
      const Status ended = group.recv(view(eight), 0, 0, 0.02);
      if (ended.code() != Code::kTimeout) return unexpected(ended, "small recv");
    }
    small_gave_up.set_value();
    PC_TRY(group.recv(view(eight), 0, 0, -1));
    const Status ended = group.recv(view(got), 0, 0, 0.02);
    if (ended.code() != Code::kTimeout || !has(ended, "rank 0")) return unexpected(ended, "large recv");
    large_gave_up.set_value();
    PC_TRY(group.recv(view(got), 0, 0, -1));
    return eight == small && got == large ? Status::ok() : Status(Code::kInternal, "wrong bytes");
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

}  // namespace
}  // namespace pc::testing
