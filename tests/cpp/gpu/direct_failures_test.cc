// Failing messages between GPUs: no message reaches a wrong receiver, and no call waits beyond its
// deadline. FAKES of the driver and of NCCL.
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "message_world.h"
#include "polling.h"

namespace pc::testing {
namespace {

constexpr double kMuchLess = kLong / 4;  // compared with the group's timeout
constexpr int kRemoteError = 6;          // NCCL's code

double seconds_of(const std::function<void()>& what) {
  const auto began = std::chrono::steady_clock::now();
  what();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

class DirectFailures : public MessageWorld {};
INSTANTIATE_TEST_SUITE_P(Over, DirectFailures, ::testing::Values(Over::kInproc, Over::kTcp, Over::kShared),
                         [](const ::testing::TestParamInfo<Over>& each) { return name_of(each.param); });

TEST_P(DirectFailures, other_sizes_are_found_without_fingerprints) {
  const Outcomes outcomes = run(
      2,
      [&](Runtime& runtime, Communicator& group) -> Status {
        PC_ASSIGN_OR_RETURN(const Rig mine, rig(runtime, group));
        const bool sends = group.rank() == 0;
        PC_ASSIGN_OR_RETURN(Array x, filled(group.rank(), 1, kLarge + (sends ? 0 : 10'000)));
        PC_TRY(expect_code(mine.run(message(x, sends ? Kind::kSend : Kind::kRecv, 1 - group.rank())),
                           Code::kMismatch, "float32[50000]"));
        return mine.close();
      },
      true, Check::kOff);
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(DirectFailures, a_sender_that_gives_up_informs_every_kind_of_receiver) {
  const Outcomes outcomes = run(2, [&](Runtime& runtime, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(const Rig mine, rig(runtime, group));
    PC_ASSIGN_OR_RETURN(Array x, filled(group.rank(), 1));
    std::vector<float> host(kLarge);
    const Buffer into{reinterpret_cast<std::byte*>(host.data()), kLarge, DType::kF32};
    for (const bool on_host : {false, true}) {
      if (group.rank() == 0) {
        PC_TRY(expect_code(mine.run(message(x, Kind::kSend, 1), kSoon), Code::kTimeout, "send to rank 1"));
        PC_TRY(host_sum(group));
      } else {
        PC_TRY(host_sum(group));
        Status ended;
        const double took = seconds_of(
            [&] { ended = on_host ? group.recv(into, 0, 0) : mine.run(message(x, Kind::kRecv, 0)); });
        PC_TRY(expect_code(ended, Code::kTimeout, "rank 0 has given this message up"));
        if (took > kMuchLess) return wrong("it waited for " + std::to_string(took) + " s");
      }
    }
    return mine.close();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(DirectFailures, a_sender_with_a_late_array_ends_its_receiver_on_the_host) {
  const Outcomes outcomes = run(2, [&](Runtime& runtime, Communicator& group) -> Status {
    if (group.rank() == 1) {
      std::vector<float> host(kLarge);
      const Buffer into{reinterpret_cast<std::byte*>(host.data()), kLarge, DType::kF32};
      const double took = seconds_of([&] { (void)group.recv(into, 0, 0); });
      if (took > kMuchLess) return wrong("it waited for " + std::to_string(took) + " s");
      PC_TRY(group.recv(into, 0, 0));
      return host[0] == 5 ? Status::ok() : wrong("something else has come");
    }
    PC_ASSIGN_OR_RETURN(const Rig mine, rig(runtime, group));
    PC_ASSIGN_OR_RETURN(Array x, filled(0, 1));
    fake_.hold_stream(x.stream.get());
    PC_TRY(produce(x, std::vector<float>(kLarge, 5)));
    PC_TRY(expect_code(mine.run(message(x, Kind::kSend, 1), kSoon), Code::kTimeout, "what makes its array"));
    fake_.release_stream(x.stream.get());
    drain(x);
    PC_TRY(mine.run(message(x, Kind::kSend, 1)));
    return mine.close();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

// Rank 1 has answered "ready", and does nothing more.
Status answer_and_stop(Communicator& group, uint32_t tag) {
  std::vector<float> host(kLarge);
  const ConstBuffer array{reinterpret_cast<const std::byte*>(host.data()), kLarge, DType::kF32};
  PC_ASSIGN_OR_RETURN(const FoundMessage found, group.find(0, tag));
  PC_TRY(group.messages().take_offer(found, array, 0));
  const MessageAnswer ready{MessageAnswer::Word::kReady, {}};
  return group.send({{reinterpret_cast<const std::byte*>(&ready), sizeof ready, DType::kU8},
                     0,
                     tag,
                     nullptr,
                     {MessagePart::kAnswer, found.number}});
}

TEST_P(DirectFailures, leaving_a_world_waits_for_no_rank_that_does_not_join) {
  std::promise<void> answered, left;
  const Outcomes outcomes = run(
      2,
      [&](Runtime& runtime, Communicator& group) -> Status {
        if (group.rank() == 1) {
          PC_TRY(answer_and_stop(group, 0));
          answered.set_value();
          left.get_future().wait();
          return Status::ok();
        }
        PC_ASSIGN_OR_RETURN(Array x, filled(0, 1));
        double took = 0;
        {
          PC_ASSIGN_OR_RETURN(const Rig mine, rig(runtime, group));
          PC_ASSIGN_OR_RETURN(const Started sending, mine.begin(message(x, Kind::kSend, 1)));
          answered.get_future().wait();
          took = seconds_of([&] { mine.gpus->abort(Status(Code::kNotInitialized, "left")); });
          took += seconds_of([&] { (void)sending->wait(-1); });
        }
        left.set_value();
        return took < kMuchLess ? Status::ok() : wrong("it took " + std::to_string(took) + " s");
      },
      false);
  EXPECT_TRUE(outcomes[0].is_ok()) << text_of(outcomes);
}

TEST_P(DirectFailures, a_call_queued_for_a_channel_does_not_wait_beyond_its_deadline) {
  std::promise<void> answered, done;
  const Outcomes outcomes = run(
      2,
      [&](Runtime& runtime, Communicator& group) -> Status {
        if (group.rank() == 1) {
          PC_TRY(answer_and_stop(group, 1));
          answered.set_value();
          PC_TRY(answer_and_stop(group, 2));
          done.get_future().wait();
          return Status::ok();
        }
        PC_ASSIGN_OR_RETURN(const Rig mine, rig(runtime, group));
        PC_ASSIGN_OR_RETURN(Array x, filled(0, 1));
        PC_ASSIGN_OR_RETURN(const Started joining, mine.begin(message(x, Kind::kSend, 1, 1)));
        answered.get_future().wait();
        const double took =
            seconds_of([&] { EXPECT_FALSE(mine.run(message(x, Kind::kSend, 1, 2), kSoon).is_ok()); });
        done.set_value();
        mine.gpus->abort(Status(Code::kNotInitialized, "left"));
        return took < kOfferGraceS + 2 ? Status::ok() : wrong("it took " + std::to_string(took) + " s");
      },
      false);
  EXPECT_TRUE(outcomes[0].is_ok()) << text_of(outcomes);
}

TEST_P(DirectFailures, an_offer_behind_unreceived_messages_ends_at_its_calls_deadline) {
  std::promise<void> done;
  const Outcomes outcomes = run(
      2,
      [&](Runtime& runtime, Communicator& group) -> Status {
        if (group.rank() == 1) return done.get_future().wait(), Status::ok();
        PC_ASSIGN_OR_RETURN(const Rig mine, rig(runtime, group));
        PC_ASSIGN_OR_RETURN(Array x, filled(0, 1));
        std::vector<std::shared_ptr<AsyncWork>> sent;
        for (int i = 0; i < 1500; ++i) {  // more than its credit
          PC_ASSIGN_OR_RETURN(auto each,
                              group.messages().begin_send({{reinterpret_cast<const std::byte*>(x.begin()),
                                                            i < 15 ? 16'300U : 2U, DType::kF32},
                                                           1,
                                                           77},
                                                          {}));
          sent.push_back(std::move(each));
        }
        const double took =
            seconds_of([&] { EXPECT_FALSE(mine.run(message(x, Kind::kSend, 1), kSoon).is_ok()); });
        done.set_value();
        return took < kOfferGraceS + 2 ? Status::ok() : wrong("it took " + std::to_string(took) + " s");
      },
      false);
  EXPECT_TRUE(outcomes[0].is_ok()) << text_of(outcomes);
}

TEST_P(DirectFailures, a_transfer_that_fails_after_its_call_is_raised_by_the_next_and_later_ones_go_on) {
  std::promise<void> over;
  std::shared_future<void> is_over(over.get_future());
  const Outcomes outcomes = run(2, [&](Runtime& runtime, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(const Rig mine, rig(runtime, group));
    PC_ASSIGN_OR_RETURN(Array x, filled(group.rank(), 1));
    PC_ASSIGN_OR_RETURN(Array y, filled(group.rank(), static_cast<float>(group.rank())));
    const bool sends = group.rank() == 0;
    const auto one = [&](Array& array) {
      return mine.run(message(array, sends ? Kind::kSend : Kind::kRecv, 1 - group.rank()));
    };
    PC_TRY(one(y));  // the channel exists
    drain(y);
    if (sends) fake_.hold_stream(x.stream.get());
    PC_TRY(mine.run(message(x, sends ? Kind::kSend : Kind::kRecv, 1 - group.rank())));  // queued
    PC_TRY(host_sum(group));
    if (sends) nccl_->async_error(nullptr, kRemoteError);
    Status raised;
    const double waited = seconds_of([&] {
      poll_until(
          [&] { return !(raised = mine.messages->take_failure()).is_ok(); });  // the watcher has detected it
    });
    PC_TRY(expect_code(raised, raised.code(), sends ? "send to rank 1" : "recv from rank 0"));
    if (raised.rank() != group.rank() || waited > kMuchLess + kOfferGraceS)
      return wrong("late, or of another rank");
    PC_TRY(host_sum(group));
    if (sends) fake_.release_stream(x.stream.get());
    drain(x);
    Status again;
    const double took = seconds_of([&] { again = one(y); });  // now through the host
    PC_TRY(again);
    drain(y);
    if (took > kMuchLess) return wrong("it took " + std::to_string(took) + " s");
    return expect(y, 0);
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

// Behaves like Python's probe: it applies only to the calling thread, and until take() is called.
class CtrlC {
 public:
  std::function<bool()> probe() {
    return [this] { return pressed_ && std::this_thread::get_id() == *caller_; };
  }
  void press_for(std::thread::id caller) {
    caller_ = caller;
    pressed_ = true;
  }
  void take() { pressed_ = false; }

 private:
  std::optional<std::thread::id> caller_;
  std::atomic<bool> pressed_{false};
};

TEST_P(DirectFailures, what_was_interrupted_is_not_sent_any_more) {
  CtrlC ctrl_c;
  std::promise<void> raised;
  const Body body = [&](Runtime& runtime, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(const Rig mine, rig(runtime, group));
    PC_ASSIGN_OR_RETURN(Array x, filled(group.rank(), 1));
    PC_ASSIGN_OR_RETURN(Array y, filled(group.rank(), 1));
    if (group.rank() == 1) {
      raised.get_future().wait();
      Status received;
      do {  // a message interrupted before this rank was notified of it leaves no trace
        received = mine.run(message(x, Kind::kRecv, 0));
        if (!received.is_ok()) PC_TRY(expect_code(received, Code::kPeerInterrupted, "given this message up"));
      } while (!received.is_ok());
      drain(x);
      PC_TRY(expect(x, 99));
      return mine.close();
    }
    UserCall both = message(x, Kind::kSendrecv, 1);
    both.request.out = y.sum().request.out;
    both.source = 1;
    UserCall waiting = both;
    waiting.request.stream = {};
    for (const UserCall& call : {both, waiting, message(x, Kind::kSend, 1)}) {
      const std::thread::id caller = std::this_thread::get_id();
      auto pressing = std::async(std::launch::async, [&, caller] { ctrl_c.press_for(caller); });
      PC_TRY(expect_code(mine.messages->run(call, -1), Code::kInterrupted, ""));
      pressing.wait();
      ctrl_c.take();
    }
    std::fill(x.begin(), x.begin() + x.count, 99.0F);
    raised.set_value();
    PC_TRY(mine.run(message(x, Kind::kSend, 1)));
    return mine.close();
  };
  const Outcomes outcomes = run_world({.over = GetParam(),
                                       .timeout_s = kLong,
                                       .log_fd = -1,
                                       .joins_gpus = true,
                                       .interrupted = ctrl_c.probe()},
                                      body);
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(DirectFailures, what_fails_on_the_gpu_is_reported_once_and_needs_nothing_of_its_caller) {
  const Outcomes outcomes = run(2, [&](Runtime& runtime, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(const Rig mine, rig(runtime, group));
    PC_ASSIGN_OR_RETURN(Array x, filled(group.rank(), 1));
    if (group.rank() == 0) {
      fake_.hold_stream(x.stream.get());
      PC_TRY(mine.run(message(x, Kind::kSend, 1)));  // queued
    } else {
      auto found = std::make_unique<FoundMessage>(group.find(0, 0).value());
      UserCall call = message(x, Kind::kRecv, 0);
      call.kind = Kind::kRecvFound;
      call.found = found.get();
      PC_TRY(mine.run(call));
      found->peer = 77;
      found.reset();
    }
    PC_TRY(host_sum(group));
    if (group.rank() == 0) nccl_->async_error(nullptr, kRemoteError);
    Status raised;
    poll_until([&] { return !(raised = mine.messages->take_failure()).is_ok(); });
    if (raised.peer() != 1 - group.rank()) return wrong("it names rank " + std::to_string(raised.peer()));
    PC_TRY(mine.messages->take_failure());
    if (group.rank() == 0) fake_.release_stream(x.stream.get());
    return host_sum(group);
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(DirectFailures, a_failure_on_the_gpu_is_reported_by_the_wait_and_not_by_a_later_call) {
  Started left;
  std::promise<void> has_error;
  const Outcomes outcomes = run(2, [&](Runtime& runtime, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(const Rig mine, rig(runtime, group));
    PC_ASSIGN_OR_RETURN(Array x, filled(group.rank(), 1));
    if (group.rank() == 1) {  // queued after work that does not complete
      fake_.hold_stream(x.stream.get());
      PC_TRY(mine.run(message(x, Kind::kRecv, 0)));
      nccl_->async_error(nullptr, kRemoteError);
      poll_until([&] { return !mine.messages->take_failure().is_ok(); });
      has_error.get_future().wait();  // otherwise it may succeed for the other rank
      fake_.release_stream(x.stream.get());
      return host_sum(group);
    }
    PC_ASSIGN_OR_RETURN(left, mine.begin(message(x, Kind::kSend, 1)));
    const Status ended = left->wait(-1);
    has_error.set_value();
    if (ended.is_ok() || ended.rank() != 0 || ended.peer() != 1) return wrong(ended.to_string());
    PC_TRY(host_sum(group));
    return mine.messages->take_failure();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
  const Status again = left->wait(-1);  // its world has ended
  EXPECT_FALSE(again.is_ok());
  EXPECT_EQ(again.rank(), 0);
}

TEST_P(DirectFailures, a_wait_after_the_world_has_ended_returns_how_the_call_ended) {
  std::vector<Started> left(2);
  const Outcomes outcomes = run(2, [&](Runtime& runtime, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(const Rig mine, rig(runtime, group));
    PC_ASSIGN_OR_RETURN(Array x, filled(group.rank(), 1));
    PC_ASSIGN_OR_RETURN(left[static_cast<std::size_t>(group.rank())],
                        mine.begin(message(x, Kind::kRecv, 1 - group.rank())));
    return expect_code(mine.gpus->close(kSoon), Code::kTimeout, "under way");
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
  for (const Started& each : left) {
    ASSERT_NE(each, nullptr);
    EXPECT_TRUE(each->outcome() && !each->ended_well());
    EXPECT_FALSE(each->wait(-1).is_ok());
    EXPECT_TRUE(each->done());
    each->detach();
  }
}

TEST_P(DirectFailures, a_late_mismatch_of_an_earlier_call_does_not_lose_a_message) {
  const Outcomes outcomes = run(2, [&](Runtime& runtime, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(const Rig mine, rig(runtime, group));
    PC_ASSIGN_OR_RETURN(Array x, filled(group.rank(), static_cast<float>(1 + group.rank())));
    PC_ASSIGN_OR_RETURN(Array y, filled(group.rank(), static_cast<float>(3 + group.rank())));
    std::vector<int32_t> words(8);
    Request broadcast;
    broadcast.collective = Collective::kBroadcast;
    broadcast.root = 1;
    broadcast.out = {reinterpret_cast<std::byte*>(words.data()), group.rank() == 1 ? 4U : 8U, DType::kI32};
    broadcast.in = broadcast.out;
    if (group.rank() == 0) {
      PC_TRY(expect_code(group.run(broadcast), Code::kMismatch, "rank 1"));
      PC_TRY(mine.run(message(x, Kind::kSend, 1)));
      PC_TRY(mine.run(message(y, Kind::kSend, 1)));
    } else {
      PC_TRY(group.run(broadcast));  // its part had completed: a later call raises the mismatch
      int raised = 0;
      for (Array* const each : {&x, &y}) {
        Status ended = mine.run(message(*each, Kind::kRecv, 0));
        if (ended.code() == Code::kMismatch && ++raised == 1)
          ended = mine.run(message(*each, Kind::kRecv, 0));
        PC_TRY(ended);
        drain(*each);
      }
      PC_TRY(expect(x, 1));
      PC_TRY(expect(y, 3));
    }
    (void)group.resync();
    return mine.close();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

}  // namespace
}  // namespace pc::testing
