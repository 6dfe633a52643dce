// Calls that continue without their caller: order, progress, ends, and that none of them gets lost.
#include "operation/async_work.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/requests.h"

namespace pc::testing {
namespace {

using Calls = std::vector<std::shared_ptr<AsyncWork>>;

// Signalled when a call has ended.
class End {
 public:
  AsyncOptions hook(double timeout_s = -1) {
    return {timeout_s, [ended = ended_](const Status&) { ended->set_value(); }};
  }
  bool came() { return future_.wait_for(std::chrono::duration<double>(kLong)) == std::future_status::ready; }

 private:
  const std::shared_ptr<std::promise<void>> ended_ = std::make_shared<std::promise<void>>();
  std::future<void> future_ = ended_->get_future();
};

struct Sum {
  Sum(const Communicator& group, std::size_t count)
      : x(contribution(DType::kF32, count, group.rank(), group.size())),
        right(reduced(DType::kF32, ReduceOp::kSum, count, group.size())) {}
  Request request() { return request_of(Collective::kAllreduce, x, x); }
  Status check() const { return x.bytes == right.bytes ? Status::ok() : wrong("wrong result"); }
  Elements x, right;
};

Status wait(AsyncWork& call, double seconds = kLong) {
  const std::optional<Status> outcome = call.wait({Deadline::after(seconds)});
  return outcome.value_or(wrong("it has not ended"));
}

class Async : public ::testing::TestWithParam<std::tuple<Over, Check>> {
 protected:
  Outcomes run(Rank size, const Body& body, bool shut_down = true) {
    return run_world({.over = std::get<0>(GetParam()),
                      .size = size,
                      .timeout_s = kLong,
                      .check = std::get<1>(GetParam()),
                      .shut_down = shut_down},
                     body);
  }
};
INSTANTIATE_TEST_SUITE_P(Over, Async,
                         ::testing::Combine(::testing::Values(Over::kInproc, Over::kTcp, Over::kShared),
                                            ::testing::Values(Check::kOn, Check::kStrict)),
                         [](const ::testing::TestParamInfo<std::tuple<Over, Check>>& each) {
                           return name_of(std::get<0>(each.param)) +
                                  (std::get<1>(each.param) == Check::kStrict ? "_strict" : "");
                         });
INSTANTIATE_TEST_SUITE_P(OverDomains, Async,
                         ::testing::Combine(::testing::Values(Over::kDomains), ::testing::Values(Check::kOn)),
                         [](const ::testing::TestParamInfo<std::tuple<Over, Check>>& each) {
                           return name_of(std::get<0>(each.param)) +
                                  (std::get<1>(each.param) == Check::kStrict ? "_strict" : "");
                         });

TEST_P(Async, calls_end_in_order_without_a_waiting_thread) {
  const Outcomes outcomes = run(3, [](Runtime&, Communicator& group) -> Status {
    constexpr std::size_t kCalls = 200;
    std::vector<Sum> sums;
    for (std::size_t i = 0; i < kCalls; ++i) sums.emplace_back(group, i % 7 == 0 ? 100'000 : i);
    End last;
    Calls calls;
    for (Sum& sum : sums) {
      const bool is_last = &sum == &sums.back();
      PC_ASSIGN_OR_RETURN(std::shared_ptr<AsyncWork> call,
                          group.begin(sum.request(), is_last ? last.hook() : AsyncOptions{}));
      calls.push_back(std::move(call));
    }
    if (!last.came()) return wrong("the last call does not end");
    for (std::size_t i = 0; i < kCalls; ++i) {
      if (!calls[i]->done()) return wrong("a later call was done before #" + std::to_string(i));
      PC_TRY(wait(*calls[i]));
      PC_TRY(sums[i].check());
    }
    return right_allreduce(group);
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

// The progress thread polls every 100 ms in any case. If only this polling detected an end, every
// round would take about as long. On a busy machine many rounds do, but not nine of ten.
TEST_P(Async, a_call_that_no_thread_waits_for_ends_as_soon_as_it_can) {
  const Outcomes outcomes = run(2, [](Runtime&, Communicator& group) -> Status {
    // of the rounds in which no caller makes progress, and of the other rounds
    std::array<std::vector<double>, 2> took;
    for (std::size_t round = 0; round < 300; ++round) {
      const TimePoint began = std::chrono::steady_clock::now();
      Sum sum(group, 10);
      End ended;
      PC_TRY(group.begin(sum.request(), ended.hook()).status());
      if (round % 2 == 1) PC_TRY(group.run(Request{}));  // makes progress on it, and does not get its result
      if (!ended.came()) return wrong("no end");
      took[round % 2].push_back(
          std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
      PC_TRY(sum.check());
    }
    for (std::vector<double>& each : took) {
      std::nth_element(each.begin(), each.begin() + 15, each.end());
      if (each[15] > 0.05) return wrong("nine of ten rounds took " + std::to_string(each[15]) + " s or more");
    }
    return Status::ok();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(Async, a_blocking_call_comes_after_those_that_were_begun_before_it) {
  const Outcomes outcomes = run(2, [](Runtime&, Communicator& group) -> Status {
    for (int round = 0; round < 20; ++round) {
      Sum first(group, 50'000), second(group, 3);
      PC_ASSIGN_OR_RETURN(const std::shared_ptr<AsyncWork> one, group.begin(first.request(), {}));
      PC_ASSIGN_OR_RETURN(const std::shared_ptr<AsyncWork> two, group.begin(second.request(), {}));
      PC_TRY(group.run(Request{}));
      if (!one->done() || !two->done()) return wrong("overtaken");
      PC_TRY(wait(*one));
      PC_TRY(wait(*two));
      PC_TRY(first.check());
      PC_TRY(second.check());
    }
    return Status::ok();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(Async, many_threads_may_wait_for_one_call_and_for_those_behind_it) {
  const Outcomes outcomes = run(2, [](Runtime&, Communicator& group) -> Status {
    for (int round = 0; round < 10; ++round) {
      Sum first(group, 200'000), second(group, 3);
      PC_ASSIGN_OR_RETURN(const std::shared_ptr<AsyncWork> one, group.begin(first.request(), {}));
      PC_ASSIGN_OR_RETURN(const std::shared_ptr<AsyncWork> two, group.begin(second.request(), {}));
      std::vector<Status> ended(4);
      std::vector<std::thread> threads;
      for (std::size_t i = 0; i < ended.size(); ++i)
        threads.emplace_back([&, i] { ended[i] = wait(i % 2 == 0 ? *one : *two); });
      for (std::thread& thread : threads) thread.join();
      for (const Status& status : ended) PC_TRY(status);
      PC_TRY(first.check());
      PC_TRY(second.check());
    }
    return Status::ok();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(Async, threads_have_a_thousand_messages_under_way_each_with_a_tag_of_its_own) {
  const Outcomes outcomes = run(2, [](Runtime&, Communicator& group) -> Status {
    constexpr uint32_t kThreads = 4, kMessages = 125;
    const Rank peer = 1 - group.rank();
    std::vector<Status> ended(kThreads);
    std::vector<std::thread> threads;
    for (uint32_t tag = 0; tag < kThreads; ++tag) {
      threads.emplace_back([&, tag] {
        ended[tag] = [&]() -> Status {
          std::vector<uint64_t> out(kMessages), in(kMessages);
          Calls calls;
          for (uint64_t i = 0; i < kMessages; ++i) {
            out[i] = i * 10 + tag;
            PC_ASSIGN_OR_RETURN(calls.emplace_back(),
                                group.messages().begin_recv(
                                    {{reinterpret_cast<std::byte*>(&in[i]), 8, DType::kU8}, peer, tag}, {}));
            PC_ASSIGN_OR_RETURN(calls.emplace_back(),
                                group.messages().begin_send(
                                    {{reinterpret_cast<std::byte*>(&out[i]), 8, DType::kU8}, peer, tag}, {}));
          }
          for (const std::shared_ptr<AsyncWork>& call : calls) PC_TRY(wait(*call));
          return in == out ? Status::ok() : wrong("messages came in another order");
        }();
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const Status& status : ended) PC_TRY(status);
    return Status::ok();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(Async, a_large_send_that_was_begun_does_not_keep_a_receive_waiting) {
  const Outcomes outcomes = run(3, [](Runtime&, Communicator& group) -> Status {
    const Rank next = (group.rank() + 1) % 3, previous = (group.rank() + 2) % 3;
    Elements out = contribution(DType::kF32, 300'000, group.rank(), 3), in = out;
    const Elements right = contribution(DType::kF32, 300'000, previous, 3);
    PC_ASSIGN_OR_RETURN(const std::shared_ptr<AsyncWork> sent,
                        group.messages().begin_send({out.view(), next}, {}));
    PC_TRY(group.recv(in.buffer(), previous, 0, -1));
    PC_TRY(wait(*sent));
    return in.bytes == right.bytes ? Status::ok() : wrong("wrong result");
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(Async, a_wait_that_ends_early_leaves_the_call_as_it_is) {
  std::promise<void> gave_up;
  const Outcomes outcomes = run(2, [&](Runtime&, Communicator& group) -> Status {
    Sum sum(group, 100'000);
    if (group.rank() == 1) {
      gave_up.get_future().wait();
      PC_TRY(group.run(sum.request()));
      return sum.check();
    }
    PC_ASSIGN_OR_RETURN(const std::shared_ptr<AsyncWork> call, group.begin(sum.request(), {}));
    const bool early = !call->wait({Deadline::after(0.05)}).has_value() && !call->done();
    int asked = 0;
    const std::function<bool()> interrupted = [&] { return ++asked == 2; };
    const bool stopped = !call->wait({Deadline::after(kLong), nullptr, &interrupted}).has_value();
    gave_up.set_value();
    if (!early || !stopped) return wrong("it ended");
    PC_TRY(wait(*call));
    return sum.check();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(Async, a_call_ends_at_its_deadline_whether_a_thread_waits_or_not) {
  std::promise<void> over;
  const std::shared_future<void> is_over = over.get_future().share();
  const Outcomes outcomes = run(2, [&](Runtime&, Communicator& group) -> Status {
    if (group.rank() == 1) {
      is_over.wait();
      Sum late(group, 4);
      const Status first = group.run(late.request()), second = group.run(late.request());
      if (first.is_ok() || second.is_ok()) return wrong("calls that rank 0 had given up");
      return right_allreduce(group);
    }
    End ended;
    Sum alone(group, 4), waited(group, 4);
    std::byte byte{};
    PC_ASSIGN_OR_RETURN(const std::shared_ptr<AsyncWork> one,
                        group.begin(alone.request(), ended.hook(kShort)));
    PC_ASSIGN_OR_RETURN(const std::shared_ptr<AsyncWork> message,
                        group.messages().begin_recv({{&byte, 1, DType::kU8}, 1, 5}, {kShort}));
    if (!ended.came()) return wrong("no end");
    PC_ASSIGN_OR_RETURN(const std::shared_ptr<AsyncWork> two, group.begin(waited.request(), {kShort}));
    const Status of_one = wait(*one), of_two = wait(*two), of_message = wait(*message);
    over.set_value();
    if (of_one.code() != Code::kTimeout || of_one.peer() != 1 || !has(of_one, "allreduce #"))
      return unexpected(of_one, "no thread waited");
    if (of_two.code() != Code::kTimeout) return unexpected(of_two, "another rank waited");
    if (of_message.code() != Code::kTimeout || !has(of_message, "tag 5"))
      return unexpected(of_message, "message");
    return right_allreduce(group);
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(Async, calls_that_cannot_be_right_are_refused_before_they_begin) {
  const Outcomes outcomes = run(2, [](Runtime&, Communicator& group) -> Status {
    Sum sum(group, 4);
    std::byte byte{};
    Request wrong = sum.request();
    wrong.out.count = 3;
    const Status request = group.begin(wrong, {}).status();
    const Status timeout = group.begin(sum.request(), {std::numeric_limits<double>::quiet_NaN()}).status();
    const Status peer = group.messages().begin_recv({{&byte, 1, DType::kU8}, 7, 0}, {}).status();
    for (const Status& status : {request, timeout, peer}) {
      if (status.code() != Code::kInvalidArgument) return unexpected(status, "not refused");
    }
    return right_allreduce(group);
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(Async, calls_in_different_order_are_a_mismatch_that_names_both) {
  const Outcomes outcomes = run(2, [](Runtime&, Communicator& group) -> Status {
    Sum first(group, 4), second(group, 9);
    if (group.rank() == 1) std::swap(first, second);
    PC_ASSIGN_OR_RETURN(const std::shared_ptr<AsyncWork> one, group.begin(first.request(), {}));
    PC_ASSIGN_OR_RETURN(const std::shared_ptr<AsyncWork> two, group.begin(second.request(), {}));
    for (const Status& status : {wait(*one), wait(*two)}) {
      if (status.code() != Code::kMismatch || !has(status, "float32[4]") || !has(status, "float32[9]"))
        return unexpected(status, "different orders");
    }
    return right_allreduce(group);
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(Async, a_failure_that_no_thread_waits_for_is_raised_by_the_next_call) {
  const Outcomes outcomes = run(2, [](Runtime&, Communicator& group) -> Status {
    Sum sum(group, group.rank() == 0 ? 4 : 5);
    End ended;
    PC_ASSIGN_OR_RETURN(std::shared_ptr<AsyncWork> call, group.begin(sum.request(), ended.hook()));
    if (group.rank() == 0) call->detach();
    if (!ended.came()) return wrong("no end");
    call->detach();
    call.reset();
    Sum next(group, 4);
    const Status late = group.run(next.request());
    if (late.code() != Code::kMismatch || !has(late, "no thread waited") || !has(late, "allreduce #"))
      return unexpected(late, "not reported");
    return right_allreduce(group);
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(Async, dropped_calls_go_on_and_give_the_others_what_they_need) {
  const Outcomes outcomes = run(2, [](Runtime&, Communicator& group) -> Status {
    Sum sum(group, 100'000);
    End ended;
    PC_TRY(group.begin(sum.request(), ended.hook()).status());
    if (!ended.came()) return wrong("no end");
    return sum.check();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(Async, the_death_of_a_peer_ends_what_is_under_way_and_names_the_peer) {
  const Outcomes outcomes = run(
      3,
      [](Runtime&, Communicator& group) -> Status {
        std::byte byte{}, ready{};
        if (group.rank() == 2) {
          PC_TRY(group.recv({&ready, 1, DType::kU8}, 0, 0, -1));
          return group.recv({&ready, 1, DType::kU8}, 1, 0, -1);  // its runtime ends without a goodbye
        }
        Sum sum(group, 4);
        End of_collective, of_message;
        PC_ASSIGN_OR_RETURN(
            const std::shared_ptr<AsyncWork> message,
            group.messages().begin_recv({{&byte, 1, DType::kU8}, 1 - group.rank(), 0}, of_message.hook()));
        PC_ASSIGN_OR_RETURN(const std::shared_ptr<AsyncWork> call,
                            group.begin(sum.request(), of_collective.hook()));
        PC_TRY(group.send({&ready, 1, DType::kU8}, 2, 0, -1));
        if (!of_message.came()) return wrong("the message does not end");
        if (!of_collective.came()) return wrong("the call does not end");
        const Status of_call = wait(*call), status = wait(*message);
        if (of_call.code() != Code::kPeerFailure || of_call.peer() != 2) return unexpected(of_call, "call");
        if (status.code() != Code::kPeerFailure || status.peer() != 2) return unexpected(status, "message");
        return Status::ok();
      },
      false);
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(Async, abort_ends_what_is_under_way_with_its_cause) {
  std::promise<void> over;
  const Outcomes outcomes = run(
      2,
      [&](Runtime&, Communicator& group) -> Status {
        if (group.rank() == 1) return over.get_future().wait(), Status::ok();
        const auto aborted = [&]() -> Status {
          std::byte byte{};
          End ended;
          PC_ASSIGN_OR_RETURN(const std::shared_ptr<AsyncWork> call,
                              group.messages().begin_recv({{&byte, 1, DType::kU8}, 1, 3}, ended.hook()));
          group.abort(Status(Code::kAborted, "red button"));
          if (!ended.came()) return wrong("no end");
          const Status status = wait(*call);
          return has(status, "red button") ? Status::ok() : unexpected(status, "abort");
        };
        const Status status = aborted();
        over.set_value();
        return status;
      },
      false);
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(Async, shutdown_waits_for_collectives_and_ends_messages_that_never_arrived) {
  const Outcomes outcomes = run(2, [](Runtime& runtime, Communicator& group) -> Status {
    std::vector<Sum> sums(20, Sum(group, 10'000));
    Calls calls;
    std::byte byte{};
    for (Sum& sum : sums) {
      PC_ASSIGN_OR_RETURN(calls.emplace_back(), group.begin(sum.request(), {}));
    }
    PC_ASSIGN_OR_RETURN(const std::shared_ptr<AsyncWork> never,
                        group.messages().begin_recv({{&byte, 1, DType::kU8}, 1 - group.rank(), 3}, {}));
    PC_TRY(runtime.shutdown(Deadline::after(kLong)));
    for (std::size_t i = 0; i < sums.size(); ++i) {
      PC_TRY(wait(*calls[i], 0));
      PC_TRY(sums[i].check());
    }
    const Status status = wait(*never, 0);
    if (status.code() != Code::kNotInitialized && status.code() != Code::kPeerExited)
      return unexpected(status, "message");
    return group.begin(Request{}, {}).is_ok() ? wrong("a call after shutdown") : Status::ok();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(Async, calls_outlive_their_runtime_and_still_return_how_they_ended) {
  std::shared_ptr<AsyncWork> kept;
  Elements x = contribution(DType::kF32, 100'000, 0, 2);
  const Outcomes outcomes = run(
      2,
      [&](Runtime&, Communicator& group) -> Status {
        if (group.rank() == 1) {
          Elements y = contribution(DType::kF32, 1, 0, 2);
          (void)group.recv(y.buffer(), 0, 0, -1);  // keeps this rank alive until rank 0 has ended
          return Status::ok();
        }
        Request request;
        request.collective = Collective::kAllreduce;
        request.in = x.view();
        request.out = x.buffer();
        PC_ASSIGN_OR_RETURN(kept, group.begin(request, {}));
        return Status::ok();
      },
      false);
  ASSERT_TRUE(all_ok(outcomes)) << text_of(outcomes);
  const Status ended = wait(*kept, 0);
  EXPECT_EQ(ended.code(), Code::kNotInitialized) << ended.to_string();
  EXPECT_TRUE(has(ended, "allreduce #1")) << ended.to_string();
}

TEST_P(Async, the_end_of_the_runtime_ends_a_wait_that_does_not_drive) {
  std::byte byte{};
  std::promise<void> looks;
  std::future<std::optional<Status>> outcome;
  const Outcomes outcomes = run(
      2,
      [&](Runtime&, Communicator& group) -> Status {
        if (group.rank() == 1) {
          (void)group.recv({&byte, 1, DType::kU8}, 0, 0, -1);  // keeps this rank alive until rank 0 has ended
          return Status::ok();
        }
        PC_ASSIGN_OR_RETURN(const std::shared_ptr<AsyncWork> call,
                            group.messages().begin_recv({{&byte, 1, DType::kU8}, 1, 3}, {}));
        outcome = std::async(std::launch::async, [call, &looks] {
          const std::function<bool()> in_the_wait = [&looks, looked = false]() mutable {
            if (!std::exchange(looked, true)) looks.set_value();
            return false;
          };
          return call->wait({Deadline::after(kLong), nullptr, &in_the_wait}, AsyncWork::Part::kWaitsOnly);
        });
        looks.get_future().wait();
        return Status::ok();
      },
      false);
  ASSERT_TRUE(all_ok(outcomes)) << text_of(outcomes);
  const Status ended = outcome.get().value_or(wrong("it has not ended"));
  EXPECT_EQ(ended.code(), Code::kNotInitialized) << ended.to_string();
}

TEST_P(Async, blocking_calls_of_other_threads_go_on_beside_what_is_under_way) {
  const Outcomes outcomes = run(2, [](Runtime&, Communicator& group) -> Status {
    const Rank peer = 1 - group.rank();
    std::byte unsent{};
    PC_ASSIGN_OR_RETURN(const std::shared_ptr<AsyncWork> idle,
                        group.messages().begin_recv({{&unsent, 1, DType::kU8}, peer, 9}, {}));
    std::vector<Status> ended(3);
    std::vector<std::thread> threads;
    for (uint32_t tag = 0; tag < 2; ++tag) {
      threads.emplace_back([&, tag] {
        std::byte out{7}, in{};
        for (int i = 0; i < 200 && ended[tag].is_ok(); ++i) {
          ended[tag] = group.rank() == 0 ? group.send({&out, 1, DType::kU8}, peer, tag, -1)
                                         : group.recv({&in, 1, DType::kU8}, peer, tag, -1);
        }
      });
    }
    for (int i = 0; i < 200 && ended[2].is_ok(); ++i) ended[2] = right_allreduce(group);
    for (std::thread& thread : threads) thread.join();
    for (const Status& status : ended) PC_TRY(status);
    if (idle->done()) return wrong("nothing was sent to it");
    PC_TRY(group.run(Request{}));
    std::byte byte{1};
    PC_TRY(group.send({&byte, 1, DType::kU8}, peer, 9, -1));
    PC_TRY(wait(*idle));
    return unsent == std::byte{1} ? Status::ok() : wrong("wrong result");
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST(AsyncAlone, a_world_of_one_is_done_at_once_and_has_no_thread) {
  RuntimeOptions options;
  const std::unique_ptr<Runtime> runtime =
      Runtime::create(std::move(options), Deadline::after(kLong)).value();
  End ended;
  const std::shared_ptr<AsyncWork> call = runtime->world().begin(Request{}, ended.hook()).value();
  EXPECT_TRUE(call->done());
  EXPECT_TRUE(ended.came());
  EXPECT_TRUE(wait(*call, 0).is_ok());
}

}  // namespace
}  // namespace pc::testing
