// What a signal handler may do: the interrupt probe of a wait runs it in the thread that waits.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "world.h"

namespace pc::testing {
namespace {

// Two ranks. The probe of rank 0 is `handler`, called only while the body runs.
Outcomes run_with_handler(const std::function<bool(Runtime&)>& handler, const Body& body) {
  const std::shared_ptr<InprocHub> hub = InprocHub::create(2);
  const auto store = std::make_shared<MemoryStore>();
  std::atomic<Runtime*> running{nullptr};
  Outcomes outcomes(2);
  std::vector<std::unique_ptr<Runtime>> runtimes(2);  // alive until both bodies have ended
  std::vector<std::thread> ranks;
  for (Rank rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      RuntimeOptions options;
      options.rank = rank;
      options.size = 2;
      options.store = store;
      options.timeout_s = 20;
      options.make_transport = [&](Rank r) { return hub->make_transport(r); };
      if (rank == 0) {
        options.interrupted = [&] {
          Runtime* const runtime = running;
          return runtime != nullptr && handler(*runtime);
        };
      }
      std::unique_ptr<Runtime>& runtime = runtimes[static_cast<std::size_t>(rank)];
      runtime = Runtime::create(std::move(options), Deadline::after(20)).value();
      if (rank == 0) running = runtime.get();
      outcomes[static_cast<std::size_t>(rank)] = body(*runtime, runtime->world());
      if (rank == 0) running = nullptr;
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return outcomes;
}

TEST(Reentry, a_handler_that_calls_into_the_group_is_refused_and_the_call_below_goes_on) {
  std::atomic<bool> refused{false};
  Status collective, message;
  std::byte byte{};
  const auto handler = [&](Runtime& runtime) {
    if (refused) return false;
    collective = runtime.world().run(Request{}, 1);
    message = runtime.world().recv({&byte, 1, DType::kU8}, 1, 0, 1);
    refused = true;
    return false;
  };
  const Outcomes outcomes = run_with_handler(handler, [&](Runtime&, Communicator& group) {
    while (group.rank() == 1 && !refused) std::this_thread::yield();
    return group.run(Request{});
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
  for (const Status* status : {&collective, &message}) {
    EXPECT_EQ(status->code(), Code::kInvalidArgument) << status->to_string();
    EXPECT_NE(status->message().find("signal handler while this thread is inside barrier #1 (dissemination)"),
              std::string::npos)
        << status->message();
  }
}

TEST(Reentry, other_threads_may_call_while_a_handler_runs) {
  std::atomic<bool> in_handler{false}, exchanged{false};
  const auto handler = [&](Runtime&) {
    in_handler = true;
    while (!exchanged) std::this_thread::yield();
    return false;
  };
  const Outcomes outcomes = run_with_handler(handler, [&](Runtime&, Communicator& group) -> Status {
    std::byte byte{};
    if (group.rank() == 1) {
      PC_TRY(group.recv({&byte, 1, DType::kU8}, 0, 0, -1));
      return group.run(Request{});
    }
    Status sent;
    std::thread second([&] {
      while (!in_handler) std::this_thread::yield();
      sent = group.send({&byte, 1, DType::kU8}, 1, 0, -1);
      exchanged = true;
    });
    const Status collective = group.run(Request{});
    second.join();
    return collective.is_ok() ? sent : collective;
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST(Reentry, a_handler_may_shut_down_and_the_call_below_ends) {
  std::atomic<bool> done{false};
  const auto handler = [&](Runtime& runtime) {
    if (!done.exchange(true)) (void)runtime.shutdown(Deadline::after(1));
    return false;
  };
  const Outcomes outcomes = run_with_handler(handler, [](Runtime&, Communicator& group) {
    std::byte byte{};
    return group.rank() == 0 ? group.run(Request{}) : group.recv({&byte, 1, DType::kU8}, 0, 0, -1);
  });
  EXPECT_FALSE(outcomes[0].is_ok()) << text_of(outcomes);  // or it sees rank 1 leave first
  EXPECT_EQ(outcomes[1].code(), Code::kPeerExited) << text_of(outcomes);
}

}  // namespace
}  // namespace pc::testing
