// Messages between arrays on GPUs: offered, then moved by a channel of two ranks, or through the
// host. FAKES of the driver and of NCCL.
#include "gpu/direct_messages.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "failure/array_description.h"
#include "message_world.h"

namespace pc::testing {
namespace {

INSTANTIATE_TEST_SUITE_P(Over, MessageWorld, ::testing::Values(Over::kInproc, Over::kTcp, Over::kShared),
                         [](const ::testing::TestParamInfo<Over>& each) { return name_of(each.param); });

TEST_P(MessageWorld, large_ones_go_by_nccl_between_two_ranks_and_no_other_rank_takes_part) {
  const Outcomes outcomes = run(3, [&](Runtime& runtime, Communicator& group) -> Status {
    if (group.rank() == 2) return Status::ok();  // it is already in shutdown()
    PC_ASSIGN_OR_RETURN(const Rig mine, rig(runtime, group));
    PC_ASSIGN_OR_RETURN(Array x, filled(group.rank(), 0));
    for (int round = 1; round <= 3; ++round) {
      if (group.rank() == 0) {
        PC_TRY(produce(x, std::vector<float>(kLarge, static_cast<float>(round))));
        PC_TRY(mine.run(message(x, Kind::kSend, 1)));
      } else {
        PC_TRY(mine.run(message(x, Kind::kRecv, 0)));
        drain(x);
        PC_TRY(expect(x, static_cast<float>(round)));
      }
    }
    const std::string text = mine.gpus->explain(group, std::nullopt);
    const std::string channel = group.rank() == 0 ? "to rank 1: by NCCL" : "from rank 0: by NCCL";
    if (text.find(channel) == std::string::npos) return wrong(text);
    return mine.close();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
  EXPECT_NE(nccl_.calls_of_newest().find("Broadcast"), std::string::npos);
  EXPECT_EQ(fake_.calls("cuMemcpyDtoHAsync"), 0);
}

TEST_P(MessageWorld, every_size_goes_round_a_ring_begun_and_at_once_and_both_ways) {
  for (const Rank size : {2, 3, 4}) {
    const Outcomes outcomes = run(size, [&](Runtime& runtime, Communicator& group) -> Status {
      PC_ASSIGN_OR_RETURN(const Rig mine, rig(runtime, group));
      const Rank rank = group.rank(), next = (rank + 1) % size, before = (rank + size - 1) % size;
      for (const std::size_t count :
           {std::size_t{0}, std::size_t{1}, std::size_t{16'384}, std::size_t{16'385}, kLarge}) {
        PC_ASSIGN_OR_RETURN(Array x, filled(rank, static_cast<float>(rank + 1), count));
        PC_ASSIGN_OR_RETURN(Array y, filled(rank, -1, count));
        PC_ASSIGN_OR_RETURN(const Started receiving, mine.begin(message(y, Kind::kRecv, before)));
        PC_ASSIGN_OR_RETURN(const Started sending, mine.begin(message(x, Kind::kSend, next)));
        PC_TRY(sending->precede(x.stream.get()));
        PC_TRY(receiving->wait(-1));
        PC_TRY(sending->wait(-1));
        PC_TRY(expect(y, static_cast<float>(before + 1)));
        UserCall both = message(y, Kind::kSendrecv, next);
        both.request.out = x.sum().request.out;
        both.source = before;
        PC_TRY(mine.run(both));
        drain(x);
        drain(y);
        PC_TRY(expect(x, static_cast<float>((rank + 2 * size - 2) % size + 1)));
      }
      return mine.close();
    });
    EXPECT_TRUE(all_ok(outcomes)) << size << " " << text_of(outcomes);
  }
}

TEST_P(MessageWorld, those_with_one_tag_come_in_the_order_of_their_calls_however_they_are_made) {
  const Outcomes outcomes = run(2, [&](Runtime& runtime, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(const Rig mine, rig(runtime, group));
    constexpr int kRounds = 20;
    std::vector<Array> arrays;
    std::vector<Started> begun;
    for (int i = 0; i < kRounds; ++i) {
      PC_ASSIGN_OR_RETURN(Array made, filled(group.rank(), group.rank() == 0 ? static_cast<float>(i) : -1.0F,
                                             i % 5 == 4 ? 10 : kLarge));
      arrays.push_back(std::move(made));
    }
    const Kind kind = group.rank() == 0 ? Kind::kSend : Kind::kRecv;
    if (group.rank() == 0) fake_.hold_stream(arrays[0].stream.get());  // the first array is ready last
    for (int i = 0; i < kRounds; ++i) {
      const UserCall call = message(arrays[static_cast<std::size_t>(i)], kind, 1 - group.rank());
      if (i == kRounds - 1) {
        if (group.rank() == 0) fake_.release_stream(arrays[0].stream.get());
        PC_TRY(mine.run(call));  // after the calls begun before
      } else {
        PC_ASSIGN_OR_RETURN(Started each, mine.begin(call));
        begun.push_back(std::move(each));
      }
    }
    for (const Started& each : begun) PC_TRY(each->wait(-1));
    drain(arrays.back());
    for (int i = 0; i < kRounds; ++i)
      PC_TRY(expect(arrays[static_cast<std::size_t>(i)], static_cast<float>(i)));
    return mine.close();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(MessageWorld, tags_are_received_in_any_order_and_from_any_rank) {
  const Outcomes outcomes = run(3, [&](Runtime& runtime, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(const Rig mine, rig(runtime, group));
    if (group.rank() != 0) {
      PC_ASSIGN_OR_RETURN(Array x, filled(group.rank(), static_cast<float>(group.rank())));
      PC_ASSIGN_OR_RETURN(Array y, filled(group.rank(), static_cast<float>(group.rank() + 10)));
      PC_ASSIGN_OR_RETURN(const Started first, mine.begin(message(x, Kind::kSend, 0, 7)));
      PC_ASSIGN_OR_RETURN(const Started second, mine.begin(message(y, Kind::kSend, 0, 8)));
      PC_TRY(first->wait(-1));
      PC_TRY(second->wait(-1));
      return mine.close();
    }
    PC_ASSIGN_OR_RETURN(Array x, filled(0, -1));
    for (const uint32_t tag : {8U, 7U}) {
      float sum = 0;
      for (int i = 0; i < 2; ++i) {
        PC_ASSIGN_OR_RETURN(const FoundMessage found, group.find(kAnyRank, tag));
        if (found.nbytes != kLarge * sizeof(float)) return wrong("found " + std::to_string(found.nbytes));
        UserCall call = message(x, Kind::kRecv, 0);
        call.kind = Kind::kRecvFound;
        call.found = &found;
        PC_TRY(mine.run(call));
        drain(x);
        PC_TRY(expect(x, static_cast<float>(tag == 8 ? found.peer + 10 : found.peer)));
        sum += *x.begin();
      }
      if (sum != (tag == 8 ? 23 : 3)) return wrong("from the same rank twice");
    }
    return mine.close();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(MessageWorld, between_a_gpu_and_the_host_they_go_through_the_host) {
  for (const Check check : {Check::kOn, Check::kOff}) {
    const Outcomes outcomes = run(
        2,
        [&](Runtime& runtime, Communicator& group) -> Status {
          if (group.rank() == 1) {
            std::vector<float> x(kLarge), y(kLarge, 2);
            const Buffer into{reinterpret_cast<std::byte*>(x.data()), kLarge, DType::kF32};
            const Buffer from{reinterpret_cast<std::byte*>(y.data()), kLarge, DType::kF32};
            PC_TRY(group.recv(into, 0, 5));
            if (x[0] != 1 || x[kLarge - 1] != 1) return wrong("recv got something else");
            PC_ASSIGN_OR_RETURN(const FoundMessage found, group.find(0, 6));
            if (!found.is_offer || found.nbytes != kLarge * sizeof(float)) return wrong("it is no offer");
            x.assign(kLarge, 0);
            PC_TRY(group.recv(into, found, std::nullopt));
            if (x[0] != 1 || x[kLarge - 1] != 1) return wrong("a found message is something else");
            x.assign(kLarge, 0);
            PC_TRY(group.messages().sendrecv({from, 0, 7}, into, 0, 7));
            return x[0] == 1 && x[kLarge - 1] == 1 ? Status::ok() : wrong("sendrecv got something else");
          }
          PC_ASSIGN_OR_RETURN(const Rig mine, rig(runtime, group));
          PC_ASSIGN_OR_RETURN(Array x, filled(0, 1));
          PC_ASSIGN_OR_RETURN(Array y, filled(0, 0));
          PC_TRY(mine.run(message(x, Kind::kSend, 1, 5)));
          PC_ASSIGN_OR_RETURN(const Started sending, mine.begin(message(x, Kind::kSend, 1, 6)));
          PC_TRY(sending->wait(-1));
          UserCall both = message(x, Kind::kSendrecv, 1, 7);
          both.request.out = y.sum().request.out;
          both.source = 1;
          PC_TRY(mine.run(both));
          drain(y);
          PC_TRY(expect(y, 2));
          return mine.close();
        },
        true, check);
    EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
  }
}

TEST_P(MessageWorld, different_arrays_are_a_mismatch_on_both_ranks_and_the_group_goes_on) {
  const Outcomes outcomes = run(2, [&](Runtime& runtime, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(const Rig mine, rig(runtime, group));
    PC_ASSIGN_OR_RETURN(Array x, filled(group.rank(), static_cast<float>(group.rank() + 1)));
    PC_ASSIGN_OR_RETURN(Array longer, filled(group.rank(), 9, kLarge + 1));
    std::vector<float> host(kLarge);
    const Buffer on_host{reinterpret_cast<std::byte*>(host.data()), kLarge, DType::kF32};
    if (group.rank() == 0) {
      for (const bool begun : {false, true}) {
        const UserCall call = message(x, Kind::kSend, 1);
        const Result<Started> started = begun ? mine.begin(call) : Result<Started>(Started());
        PC_TRY(started.status());
        const Status ended = begun ? started.value()->wait(-1) : mine.run(call);
        PC_TRY(expect_code(ended, Code::kMismatch,
                           "rank 1 expects float32[40001], this rank sends float32[40000]"));
        PC_TRY(expect_code(ended, Code::kMismatch, "send to rank 1"));
      }
      PC_TRY(expect_code(mine.run(message(x, Kind::kSend, 1)), Code::kMismatch, "in memory of the host"));
      PC_TRY(mine.run(message(x, Kind::kSend, 1)));
    } else {
      for (const bool begun : {false, true}) {
        const UserCall call = message(longer, Kind::kRecv, 0);
        const Result<Started> started = begun ? mine.begin(call) : Result<Started>(Started());
        PC_TRY(started.status());
        const Status ended = begun ? started.value()->wait(-1) : mine.run(call);
        PC_TRY(expect_code(ended, Code::kMismatch, "rank 0 sent another array, from a GPU"));
        PC_TRY(expect(longer, 9));
      }
      PC_ASSIGN_OR_RETURN(const auto receiving, group.messages().begin_recv({on_host, 0, 0}, {}));
      const std::optional<Status> refused = receiving->wait(group.waiting_until(Deadline::after(kLong)));
      if (!refused) return wrong("it goes on");
      PC_TRY(expect_code(*refused, Code::kMismatch, "only recv()"));
      PC_TRY(mine.run(message(x, Kind::kRecv, 0)));
      drain(x);
      PC_TRY(expect(x, 1));
    }
    return mine.close();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(MessageWorld, one_that_is_given_up_ends_for_its_receiver_and_the_next_is_right) {
  const Outcomes outcomes = run(2, [&](Runtime& runtime, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(const Rig mine, rig(runtime, group));
    PC_ASSIGN_OR_RETURN(Array x, filled(group.rank(), static_cast<float>(group.rank() + 1)));
    if (group.rank() == 0) {
      PC_TRY(expect_code(mine.run(message(x, Kind::kSend, 1), kSoon), Code::kTimeout, "send to rank 1"));
      PC_TRY(host_sum(group));
      PC_TRY(mine.run(message(x, Kind::kSend, 1)));
    } else {
      PC_TRY(expect_code(mine.run(message(x, Kind::kRecv, 0, 3), kSoon), Code::kTimeout, "rank 0"));
      PC_TRY(host_sum(group));
      PC_TRY(expect_code(mine.run(message(x, Kind::kRecv, 0)), Code::kTimeout, "has given this message up"));
      PC_TRY(mine.run(message(x, Kind::kRecv, 0)));
      drain(x);
      PC_TRY(expect(x, 1));
    }
    return mine.close();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(MessageWorld, what_was_begun_comes_after_what_makes_its_array_and_before_what_uses_it) {
  const Outcomes outcomes = run(2, [&](Runtime& runtime, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(const Rig mine, rig(runtime, group));
    PC_ASSIGN_OR_RETURN(Array x, filled(group.rank(), -1));
    PC_ASSIGN_OR_RETURN(Array y, filled(group.rank(), -1));
    if (group.rank() == 0) {
      fake_.hold_stream(x.stream.get());
      PC_TRY(produce(x, std::vector<float>(kLarge, 5)));
      PC_ASSIGN_OR_RETURN(const Started sending, mine.begin(message(x, Kind::kSend, 1)));
      PC_ASSIGN_OR_RETURN(const Started word,
                          mine.begin(message(y, Kind::kRecv, 1)));  // in the opposite direction, meanwhile
      PC_TRY(word->wait(-1));
      if (sending->done()) return wrong("it has ended before its array was made");
      fake_.release_stream(x.stream.get());
      PC_TRY(sending->wait(-1));
    } else {
      PC_ASSIGN_OR_RETURN(const Started receiving, mine.begin(message(x, Kind::kRecv, 0)));
      PC_TRY(mine.run(message(y, Kind::kSend, 0)));
      PC_TRY(receiving->precede(y.stream.get()));
      PC_TRY(copy(y, x, y.stream.get()));
      drain(y);
      PC_TRY(expect(y, 5));
    }
    return mine.close();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(MessageWorld, one_that_was_given_up_ends_for_a_receiver_on_the_host_too) {
  const Outcomes outcomes = run(2, [&](Runtime& runtime, Communicator& group) -> Status {
    std::vector<float> host(kLarge);
    const Buffer into{reinterpret_cast<std::byte*>(host.data()), kLarge, DType::kF32};
    if (group.rank() == 1) {
      PC_TRY(host_sum(group));
      PC_TRY(expect_code(group.recv(into, 0, 0), Code::kTimeout, "rank 0 has given this message up"));
      PC_TRY(group.recv(into, 0, 0));
      return host[kLarge - 1] == 1 ? Status::ok() : wrong("something else has come");
    }
    PC_ASSIGN_OR_RETURN(const Rig mine, rig(runtime, group));
    PC_ASSIGN_OR_RETURN(Array x, filled(0, 1));
    PC_TRY(expect_code(mine.run(message(x, Kind::kSend, 1), kSoon), Code::kTimeout, "send to rank 1"));
    PC_TRY(host_sum(group));
    PC_TRY(mine.run(message(x, Kind::kSend, 1)));
    return mine.close();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(MessageWorld, the_failure_of_a_detached_call_is_raised_by_the_next_call) {
  const Outcomes outcomes = run(2, [&](Runtime& runtime, Communicator& group) -> Status {
    if (group.rank() == 1) return host_sum(group);
    PC_ASSIGN_OR_RETURN(const Rig mine, rig(runtime, group));
    PC_ASSIGN_OR_RETURN(Array x, filled(0, 1));
    for (const bool early : {true, false}) {
      std::promise<void> ended;
      PC_ASSIGN_OR_RETURN(Started sending, mine.messages->begin(message(x, Kind::kSend, 1), kSoon,
                                                                [&](const Status&) { ended.set_value(); }));
      if (early) sending->detach();
      ended.get_future().wait();
      if (!early) sending->detach();
      PC_TRY(expect_code(mine.run(message(x, Kind::kRecv, 1), kSoon), Code::kTimeout, "send to rank 1"));
    }
    PC_TRY(host_sum(group));
    return mine.close();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(MessageWorld, an_asynchronous_send_carries_its_shape_to_a_receiver_without_it) {
  const Outcomes outcomes = run(2, [&](Runtime& runtime, Communicator& group) -> Status {
    if (group.rank() == 1) {
      PC_ASSIGN_OR_RETURN(const FoundMessage found, group.find(0, 0));
      PC_ASSIGN_OR_RETURN(const ArrayDescription what, described_array(found.description, found.nbytes));
      if (what.shape != std::vector<int64_t>{200, 200}) return wrong("another shape");
      std::vector<float> host(kLarge);
      PC_TRY(
          group.recv({reinterpret_cast<std::byte*>(host.data()), kLarge, DType::kF32}, found, std::nullopt));
      return host[0] == 1 ? Status::ok() : wrong("something else has come");
    }
    PC_ASSIGN_OR_RETURN(const Rig mine, rig(runtime, group));
    PC_ASSIGN_OR_RETURN(Array x, filled(0, 1));
    UserCall call = message(x, Kind::kSend, 1);
    auto shape = std::make_unique<std::vector<int64_t>>(2, 200);
    call.shape = *shape;
    PC_ASSIGN_OR_RETURN(const Started sending, mine.begin(call));
    shape.reset();
    PC_TRY(sending->wait(-1));
    return mine.close();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(MessageWorld, the_death_of_the_other_rank_ends_it_at_any_stage) {
  const Outcomes outcomes = run(
      2,
      [&](Runtime& runtime, Communicator& group) -> Status {
        PC_ASSIGN_OR_RETURN(const Rig mine, rig(runtime, group));
        PC_ASSIGN_OR_RETURN(Array x, filled(group.rank(), 1));
        PC_TRY(host_sum(group));
        if (group.rank() == 1) return Status::ok();  // its runtime ends without a goodbye
        PC_ASSIGN_OR_RETURN(const Started receiving, mine.begin(message(x, Kind::kRecv, 1, 1)));
        const Status sent = mine.run(message(x, Kind::kSend, 1));
        PC_TRY(expect_code(sent, Code::kPeerFailure, "rank 1"));
        return receiving->wait(-1);
      },
      false);
  EXPECT_EQ(outcomes[0].code(), Code::kPeerFailure) << text_of(outcomes);
}

TEST_P(MessageWorld, ranks_without_a_direct_path_go_through_the_host) {
  fake_.set_peer_access(0);
  has_nccl_ = false;
  const Outcomes outcomes = run(2, [&](Runtime& runtime, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(const Rig mine, rig(runtime, group));
    PC_ASSIGN_OR_RETURN(Array x, filled(group.rank(), static_cast<float>(group.rank() + 1)));
    PC_ASSIGN_OR_RETURN(Array y, filled(group.rank(), -1));
    UserCall both = message(x, Kind::kSendrecv, 1 - group.rank());
    both.request.out = y.sum().request.out;
    both.source = 1 - group.rank();
    PC_TRY(mine.run(both));
    PC_TRY(expect(y, static_cast<float>(2 - group.rank())));
    const std::string text = mine.gpus->explain(group, std::nullopt);
    if (text.find("to rank " + std::to_string(1 - group.rank()) + ": through the host") == std::string::npos)
      return wrong(text);
    return mine.close();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(MessageWorld, ranks_that_share_a_gpu_reach_each_others_arrays) {
  const Outcomes outcomes = run(3, [&](Runtime& runtime, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(const Rig mine, rig(runtime, group, 0));
    const Rank next = (group.rank() + 1) % 3, before = (group.rank() + 2) % 3;
    PC_ASSIGN_OR_RETURN(Array x, filled(0, static_cast<float>(group.rank() + 1)));
    PC_ASSIGN_OR_RETURN(Array y, filled(0, -1));
    UserCall both = message(x, Kind::kSendrecv, next);
    both.request.out = y.sum().request.out;
    both.source = before;
    PC_TRY(mine.run(both));
    drain(y);
    PC_TRY(expect(y, static_cast<float>(before + 1)));
    const std::string text = mine.gpus->explain(group, std::nullopt);
    if (text.find("from array to array") == std::string::npos) return wrong(text);
    return mine.close();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

}  // namespace
}  // namespace pc::testing
