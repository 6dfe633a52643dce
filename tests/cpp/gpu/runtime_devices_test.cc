// The view of a C++ program: the groups of a runtime accept arrays on GPUs as they accept those of
// the host, and the runtime makes and ends the required objects. FAKES of the driver and of NCCL.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <latch>
#include <memory>
#include <string>
#include <thread>

#include "message_world.h"

namespace pc::testing {
namespace {

using RuntimeDevices = MessageWorld;
INSTANTIATE_TEST_SUITE_P(Over, RuntimeDevices, ::testing::Values(Over::kInproc),
                         [](const ::testing::TestParamInfo<Over>& each) { return name_of(each.param); });

TEST_P(RuntimeDevices, a_groups_own_calls_take_arrays_on_gpus_and_open_nothing_before_the_first) {
  const Outcomes outcomes = run(2, [&](Runtime& runtime, Communicator& world) -> Status {
    PC_TRY(host_sum(world));
    if (runtime.devices().made() != nullptr) return wrong("devices without a call for them");
    PC_ASSIGN_OR_RETURN(Array x, filled(world.rank(), static_cast<float>(world.rank() + 1)));
    PC_TRY(world.run(x.sum().request));  // queued
    drain(x);
    PC_TRY(expect(x, 3));
    Request without_stream = x.sum().request;
    without_stream.stream = {};
    PC_TRY(world.run(without_stream));  // has completed
    PC_TRY(expect(x, 6));
    std::promise<Status> reported;
    PC_ASSIGN_OR_RETURN(
        const std::shared_ptr<AsyncWork> begun,
        world.begin(x.sum().request, {-1, [&](const Status& how) { reported.set_value(how); }}));
    const std::optional<Status> ended = begun->wait({Deadline::after(kLong)});
    if (!ended) return wrong("it has not ended");
    PC_TRY(*ended);
    std::future<Status> end = reported.get_future();
    if (end.wait_for(std::chrono::duration<double>(kLong)) != std::future_status::ready)
      return wrong("its end is not reported");
    PC_TRY(end.get());
    PC_TRY(expect(x, 12));
    PC_ASSIGN_OR_RETURN(Communicator* const group, runtime.make_group(1, {1, 0}));
    PC_TRY(group->run(without_stream));
    return expect(x, 24);
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(RuntimeDevices, so_do_its_messages) {
  for (const std::size_t count : {std::size_t{10}, kLarge}) {
    const Outcomes outcomes = run(2, [&](Runtime&, Communicator& world) -> Status {
      PC_ASSIGN_OR_RETURN(Array x, filled(world.rank(), static_cast<float>(world.rank() + 1), count));
      PC_ASSIGN_OR_RETURN(Array y, filled(world.rank(), 0, count));
      const bool sends = world.rank() == 0;
      const Rank peer = 1 - world.rank();
      const Buffer own = x.sum().request.out, other = y.sum().request.out;
      PC_TRY(sends ? world.send({.data = own, .peer = 1, .stream = x.stream.get()})
                   : world.recv({.data = other, .peer = 0, .stream = y.stream.get()}));
      drain(sends ? x : y);
      if (!sends) PC_TRY(expect(y, 1));
      EXPECT_EQ(world.sendrecv({.data = own, .peer = peer, .tag = 3}, other, peer, 7).code(),
                Code::kUnsupported);
      PC_TRY(world.sendrecv({.data = own, .peer = peer}, other, peer, 0));
      PC_TRY(expect(y, static_cast<float>(peer + 1)));
      PC_ASSIGN_OR_RETURN(const std::shared_ptr<AsyncWork> sent,
                          world.begin_send({.data = own, .peer = peer, .tag = 7}, {}));
      PC_ASSIGN_OR_RETURN(const std::shared_ptr<AsyncWork> received,
                          world.begin_recv({.data = own, .peer = peer, .tag = 7}, {}));
      for (const std::shared_ptr<AsyncWork>& each : {sent, received}) {
        const std::optional<Status> ended = each->wait({Deadline::after(kLong)});
        if (!ended) return wrong("it has not ended");
        PC_TRY(*ended);
      }
      if (sends) return world.send({.data = other, .peer = 1, .tag = 8});
      PC_ASSIGN_OR_RETURN(const FoundMessage found, world.find(0, 8));
      PC_TRY(world.recv(other, found));
      return expect(y, 2);
    });
    EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
  }
}

// Devices that a test scripts.
class ScriptedDevices final : public Devices {
 public:
  std::function<Status()> on_run = [] { return Status::ok(); };
  std::function<Status()> on_close = [] { return Status::ok(); };
  std::function<void()> on_abort = [] {}, on_end = [] {};
  bool knows_all = false;

  ~ScriptedDevices() override { on_end(); }
  Status run(Communicator&, UserCall, double) override { return on_run(); }
  Result<std::shared_ptr<AsyncWork>> begin(Communicator&, UserCall, AsyncOptions) override {
    return Status(Code::kUnsupported, "nothing begins here");
  }
  Status join(Communicator&, int, void*, double, bool) override { return Status::ok(); }
  Route route_of(const Communicator&, const UserCall&) override { return {}; }
  std::string explain(const Communicator&, std::optional<Collective>) override { return not_known_yet(); }
  bool can_split(const Communicator&) override { return false; }
  Status split(const Communicator&, Communicator*, double) override { return Status::ok(); }
  bool knows(const Communicator&) override { return knows_all; }
  Status settle(double) override { return Status::ok(); }
  Status close(double) override { return on_close(); }
  void abort(const Status&) override { on_abort(); }
};

class RuntimeEnds : public ::testing::Test {
 protected:
  using Make = decltype(RuntimeOptions::make_devices);
  static Outcomes run_with(Rank size, Make make, const Body& body, bool shut_down = true) {
    return run_world({.size = size,
                      .timeout_s = kLong,
                      .shut_down = shut_down,
                      .log_fd = -1,
                      .make_devices = std::move(make)},
                     body);
  }
  // Returns a call on memory that is declared to be on a GPU and is never accessed.
  static Request call() {
    static std::byte somewhere[4];
    Request request;
    request.collective = Collective::kAllreduce;
    request.out = {somewhere, 1, DType::kF32, {DeviceType::kCuda, 0}};
    request.in = request.out;
    return request;
  }
  static Status barrier(Communicator& group) { return group.run(Request{}, kLong); }
};

TEST_F(RuntimeEnds, without_devices_arrays_on_gpus_are_refused) {
  const Outcomes outcomes = run_with(1, {}, [](Runtime& runtime, Communicator& world) -> Status {
    const Status refused = world.run(call());
    EXPECT_EQ(refused.code(), Code::kUnsupported);
    EXPECT_NE(refused.message().find("this group moves CPU memory only"), std::string::npos);
    EXPECT_EQ(runtime.devices().made(), nullptr);
    return Status::ok();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_F(RuntimeEnds, devices_that_cannot_be_made_fail_the_call_and_the_next_one_tries_again) {
  std::atomic<int> tries{0};
  const auto make = [&](Runtime&) -> Result<std::shared_ptr<Devices>> {
    if (++tries == 1) return Status(Code::kSystem, "no driver today");
    return std::shared_ptr<Devices>(std::make_shared<ScriptedDevices>());
  };
  const Outcomes outcomes = run_with(1, make, [&](Runtime&, Communicator& world) -> Status {
    const Status failed = world.run(call());
    EXPECT_EQ(failed.message(), "no driver today");
    PC_TRY(world.run(call()));
    return world.run(call());
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
  EXPECT_EQ(tries, 2);
}

TEST_F(RuntimeEnds, making_them_may_shut_the_runtime_down_and_then_the_call_has_none) {
  std::atomic<int> gone{0};
  const auto make = [&](Runtime& runtime) -> Result<std::shared_ptr<Devices>> {
    PC_TRY(runtime.shutdown(Deadline::after(kLong)));
    const auto made = std::make_shared<ScriptedDevices>();
    made->on_end = [&] { ++gone; };
    return std::shared_ptr<Devices>(made);
  };
  const Outcomes outcomes = run_with(2, make, [&](Runtime& runtime, Communicator& world) -> Status {
    const Status late = world.run(call());
    EXPECT_EQ(late.code(), Code::kNotInitialized) << late.to_string();
    EXPECT_EQ(runtime.devices().made(), nullptr);
    return Status::ok();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
  EXPECT_EQ(gone, 2);
}

TEST_F(RuntimeEnds, two_threads_that_call_first_at_once_use_the_same_devices) {
  std::latch both_make(2);
  std::atomic<int> gone{0};
  std::atomic<Devices*> used{nullptr};
  std::atomic<bool> one{true};
  const auto make = [&](Runtime&) -> Result<std::shared_ptr<Devices>> {
    both_make.arrive_and_wait();  // would block forever if a lock were held
    const auto made = std::make_shared<ScriptedDevices>();
    made->on_end = [&] { ++gone; };
    made->on_run = [&, self = made.get()] {
      Devices* first = nullptr;
      if (!used.compare_exchange_strong(first, self) && first != self) one = false;
      return Status::ok();
    };
    return std::shared_ptr<Devices>(made);
  };
  const Outcomes outcomes = run_with(1, make, [&](Runtime& runtime, Communicator& world) -> Status {
    std::future<Status> other = std::async(std::launch::async, [&] { return world.run(call()); });
    const Status mine = world.run(call());
    PC_TRY(other.get());
    PC_TRY(mine);
    EXPECT_EQ(gone, 1);
    EXPECT_EQ(runtime.devices().made().get(), used);
    return Status::ok();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
  EXPECT_TRUE(one);
  EXPECT_EQ(gone, 2);
}

TEST_F(RuntimeEnds, shutdown_closes_them_before_a_rank_leaves_and_returns_their_error) {
  std::atomic<int> gone{0};
  const auto make = [&](Runtime& runtime) -> Result<std::shared_ptr<Devices>> {
    const auto made = std::make_shared<ScriptedDevices>();
    made->on_close = [&runtime]() -> Status {
      PC_TRY(barrier(runtime.world()));                               // no rank has left
      PC_TRY(runtime.make_internal_group(runtime.world()).status());  // nor shut down
      return Status(Code::kAborted, "rank " + std::to_string(runtime.world().rank()));
    };
    made->on_end = [&gone, &runtime] { gone += runtime.world().ended() ? 0 : 1; };
    return std::shared_ptr<Devices>(made);
  };
  const Outcomes outcomes =
      run_with(2, make, [&](Runtime&, Communicator& world) { return world.run(call()); });
  for (Rank rank = 0; rank < 2; ++rank)
    EXPECT_EQ(outcomes[static_cast<std::size_t>(rank)].message(), "rank " + std::to_string(rank));
  EXPECT_EQ(gone, 2);  // while their groups still existed
}

TEST_F(RuntimeEnds, abort_ends_them_first_also_while_a_shutdown_waits_for_them) {
  std::promise<void> closes, aborted;
  std::atomic<bool> group_lived{false};
  const auto make = [&](Runtime& runtime) -> Result<std::shared_ptr<Devices>> {
    const auto made = std::make_shared<ScriptedDevices>();
    made->on_close = [&] {
      closes.set_value();
      return aborted.get_future().wait_for(std::chrono::duration<double>(kLong)) == std::future_status::ready
                 ? Status(Code::kAborted, "ended")
                 : wrong("nothing has ended it");
    };
    made->on_abort = [&] {
      group_lived = !runtime.world().ended();
      aborted.set_value();
    };
    return std::shared_ptr<Devices>(made);
  };
  const auto body = [&](Runtime& runtime, Communicator& world) -> Status {
    PC_TRY(world.run(call()));
    std::future<Status> shut_down =
        std::async(std::launch::async, [&] { return runtime.shutdown(Deadline::after(kLong)); });
    closes.get_future().wait();
    runtime.abort(Status(Code::kAborted, "the test says so"));
    EXPECT_EQ(shut_down.get().message().find("nothing has ended it"), std::string::npos);
    return Status::ok();
  };
  const Outcomes outcomes = run_with(1, make, body, false);
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
  EXPECT_TRUE(group_lived);
}

TEST_F(RuntimeEnds, a_runtime_without_shutdown_ends_them_while_its_groups_exist) {
  std::string order;
  const auto make = [&](Runtime& runtime) -> Result<std::shared_ptr<Devices>> {
    const auto made = std::make_shared<ScriptedDevices>();
    made->on_abort = [&] { order += runtime.world().ended() ? "late abort, " : "abort, "; };
    made->on_end = [&] { order += runtime.world().ended() ? "late end" : "end"; };
    return std::shared_ptr<Devices>(made);
  };
  const Outcomes outcomes = run_with(
      1, make, [&](Runtime&, Communicator& world) { return world.run(call()); }, false);
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
  EXPECT_EQ(order, "abort, end");
}

TEST_F(RuntimeEnds, a_group_that_they_know_stays_open_until_the_end) {
  ScriptedDevices* scripted = nullptr;
  const auto make = [&](Runtime&) -> Result<std::shared_ptr<Devices>> {
    const auto made = std::make_shared<ScriptedDevices>();
    scripted = made.get();
    return std::shared_ptr<Devices>(made);
  };
  const Outcomes outcomes = run_with(1, make, [&](Runtime& runtime, Communicator& world) -> Status {
    PC_ASSIGN_OR_RETURN(Communicator* const group, runtime.make_group(1, {0}));
    PC_TRY(world.run(call()));
    scripted->knows_all = true;
    runtime.close_group(*group);
    if (runtime.group_count() != 1) return wrong("it was closed");
    PC_TRY(barrier(*group));
    scripted->knows_all = false;
    runtime.close_group(*group);
    EXPECT_EQ(runtime.group_count(), 0U);
    return Status::ok();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_F(RuntimeEnds, a_group_closed_while_they_end_stays_open_and_their_error_is_returned_apart) {
  std::atomic<Communicator*> group{nullptr};
  const auto make = [&](Runtime& runtime) -> Result<std::shared_ptr<Devices>> {
    const auto made = std::make_shared<ScriptedDevices>();
    made->on_close = [&] {
      runtime.close_group(*group);
      EXPECT_EQ(runtime.group_count(), 1U);
      return Status(Code::kAborted, "not all ended well");
    };
    return std::shared_ptr<Devices>(made);
  };
  const Outcomes outcomes = run_with(1, make, [&](Runtime& runtime, Communicator& world) -> Status {
    PC_ASSIGN_OR_RETURN(group, runtime.make_group(1, {0}));
    PC_TRY(world.run(call()));
    Status on_devices;
    PC_TRY(runtime.shutdown(Deadline::after(kLong), &on_devices));
    EXPECT_EQ(on_devices.message(), "not all ended well");
    return Status::ok();
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_F(RuntimeEnds, a_message_that_was_found_is_put_back_where_they_cannot_be_made) {
  const auto make = [](Runtime&) -> Result<std::shared_ptr<Devices>> {
    return Status(Code::kSystem, "no driver today");
  };
  const Outcomes outcomes = run_with(2, make, [](Runtime&, Communicator& world) -> Status {
    std::byte x{7};
    if (world.rank() == 0) return world.send({&x, 1, DType::kU8}, 1, 3);
    PC_ASSIGN_OR_RETURN(const FoundMessage found, world.find(0, 3));
    EXPECT_EQ(world.recv({&x, 1, DType::kU8, {DeviceType::kCuda, 0}}, found).message(), "no driver today");
    x = {};
    PC_TRY(world.recv({&x, 1, DType::kU8}, 0, 3, kLong));
    return x == std::byte{7} ? Status::ok() : wrong("another message came");
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(RuntimeDevices, shutdown_waits_for_calls_that_are_under_way) {
  const Outcomes outcomes = run(
      2,
      [&](Runtime& runtime, Communicator& world) -> Status {
        PC_ASSIGN_OR_RETURN(Array x, filled(world.rank(), static_cast<float>(world.rank() + 1)));
        PC_ASSIGN_OR_RETURN(const std::shared_ptr<AsyncWork> begun, world.begin(x.sum().request, {}));
        std::thread later([&] { drain(x); });
        const Status left = runtime.shutdown(Deadline::after(kLong));
        later.join();
        PC_TRY(left);
        if (!begun->outcome()) return wrong("it has not ended");
        PC_TRY(*begun->outcome());
        return expect(x, 3);
      },
      false);
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST_P(RuntimeDevices, abort_ends_a_call_that_the_other_rank_does_not_enter) {
  std::latch both(2);
  const Outcomes outcomes = run(
      2,
      [&](Runtime& runtime, Communicator& world) -> Status {
        PC_ASSIGN_OR_RETURN(Array x, filled(world.rank(), 1));
        PC_TRY(world.run(x.sum().request));
        drain(x);
        if (world.rank() == 0) {
          PC_ASSIGN_OR_RETURN(const std::shared_ptr<AsyncWork> begun, world.begin(x.sum().request, {}));
          std::future<std::optional<Status>> waits =
              std::async(std::launch::async, [&] { return begun->wait({Deadline::after(kLong)}); });
          runtime.abort(Status(Code::kAborted, "the test says so"));
          const std::optional<Status> ended = waits.get();
          PC_TRY(!ended ? wrong("it goes on") : expect_code(*ended, Code::kAborted, "the test says so"));
          PC_TRY(expect_code(world.run(x.sum().request), Code::kNotInitialized, "the world was shut down"));
        }
        both.arrive_and_wait();
        return Status::ok();
      },
      false);
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

}  // namespace
}  // namespace pc::testing
