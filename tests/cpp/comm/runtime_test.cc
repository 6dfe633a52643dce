// How ranks find each other, and what they are told when they cannot.
#include "comm/runtime.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "store/memory.h"
#include "world.h"

namespace pc::testing {
namespace {

RuntimeOptions options_of(Rank rank, Rank size, std::shared_ptr<Store> store, double timeout_s) {
  RuntimeOptions options;
  options.rank = rank;
  options.size = size;
  options.store = std::move(store);
  options.timeout_s = timeout_s;
  return options;
}
bool has(const Status& status, const std::string& part) {
  return status.to_string().find(part) != std::string::npos;
}

// Creates a runtime per given (rank, size), at the same time.
Outcomes create_all(const std::vector<std::pair<Rank, Rank>>& ranks, double timeout_s) {
  const auto store = std::make_shared<MemoryStore>();
  std::vector<std::unique_ptr<Runtime>> runtimes(ranks.size());  // alive until all have been created
  Outcomes outcomes(ranks.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i] {
      Result<std::unique_ptr<Runtime>> created =
          Runtime::create(options_of(ranks[i].first, ranks[i].second, store, timeout_s));
      outcomes[i] = created.status();
      if (created.is_ok()) runtimes[i] = std::move(created).value();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

TEST(Runtime, one_rank_needs_neither_store_nor_transport) {
  const std::unique_ptr<Runtime> runtime = Runtime::create(options_of(0, 1, nullptr, 5)).value();
  EXPECT_EQ(runtime->world().size(), 1);
  EXPECT_EQ(runtime->hosts().local_size, 1);
  EXPECT_TRUE(runtime->world().run(Request{}).is_ok());
  EXPECT_TRUE(runtime->world().launch(Request{}).value()->done());
  EXPECT_TRUE(has(Status(Code::kInternal, runtime->world().explain(Collective::kAllreduce, 8, 0).value()),
                  "nothing to do"));
  EXPECT_TRUE(runtime->shutdown(Deadline::after(1)).is_ok());
  EXPECT_EQ(runtime->world().run(Request{}).code(), Code::kNotInitialized);
}

TEST(Runtime, impossible_options_are_refused) {
  const auto store = std::make_shared<MemoryStore>();
  for (const auto& [rank, size] : {std::pair{0, 0}, {2, 2}, {-1, 2}}) {
    EXPECT_EQ(Runtime::create(options_of(rank, size, store, 1)).status().code(), Code::kInvalidArgument);
  }
  EXPECT_EQ(Runtime::create(options_of(0, 2, nullptr, 1)).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Runtime::create(options_of(0, 2, store, -1)).status().code(), Code::kInvalidArgument);
  RuntimeOptions pigeon = options_of(0, 2, store, 1);
  pigeon.transport = "pigeon";
  EXPECT_TRUE(has(Runtime::create(pigeon).status(), "pigeon"));
}

TEST(Runtime, ranks_that_never_come_are_named_on_every_rank_that_came) {
  const Outcomes outcomes = create_all({{0, 4}, {2, 4}}, 0.4);
  for (const Status& s : outcomes) {
    EXPECT_TRUE(s.code() == Code::kTimeout || s.code() == Code::kAborted) << text_of(outcomes);
    EXPECT_TRUE(has(s, "never came: 1, 3")) << text_of(outcomes);
    EXPECT_TRUE(has(s, "init on rank")) << text_of(outcomes);
  }
}

TEST(Runtime, a_rank_that_is_given_twice_is_refused) {
  const Outcomes outcomes = create_all({{0, 2}, {1, 2}, {1, 2}}, 5);
  EXPECT_EQ(std::count_if(outcomes.begin(), outcomes.end(), [](const Status& s) { return s.is_ok(); }), 2)
      << text_of(outcomes);
  EXPECT_TRUE(has(outcomes[1], "same rank") || has(outcomes[2], "same rank")) << text_of(outcomes);
}

TEST(Runtime, ranks_that_disagree_about_the_size_are_told) {
  const Outcomes outcomes = create_all({{0, 2}, {1, 3}}, 5);
  for (const Status& s : outcomes) EXPECT_TRUE(has(s, "give all the same size")) << text_of(outcomes);
}

TEST(Runtime, a_bad_tuning_text_of_rank_0_is_reported_everywhere) {
  const Outcomes outcomes = run_world({.size = 2, .tune = "allreduce:0-64k:magic"},
                                      [](Runtime&, Communicator&) { return Status::ok(); });
  for (const Status& s : outcomes)
    EXPECT_TRUE(has(s, "magic") && has(s, "recursive_doubling")) << text_of(outcomes);
}

TEST(Runtime, rank_0_tunes_everybody) {
  const Outcomes outcomes = run_world(
      {.size = 3, .tune = "allreduce:0-inf:ring"}, [](Runtime& runtime, Communicator& group) -> Status {
        PC_ASSIGN_OR_RETURN(const std::string text, group.explain(Collective::kAllreduce, 8, 0));
        const HostMap& hosts = runtime.hosts();
        const bool right = text.find("ring") != std::string::npos &&
                           text.find("transport: inproc") != std::string::npos && hosts.local_size == 3 &&
                           hosts.local_rank == group.rank() && hosts.ranks.size() == 3;
        return right ? Status::ok() : Status(Code::kInternal, text);
      });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST(Runtime, an_interrupt_ends_a_waiting_call) {
  const std::shared_ptr<InprocHub> hub = InprocHub::create(2);
  const auto store = std::make_shared<MemoryStore>();
  std::atomic<bool> interrupted{false};
  Outcomes outcomes(2);
  std::vector<std::thread> ranks;
  for (Rank rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      RuntimeOptions options = options_of(rank, 2, store, 20);
      options.make_transport = [&](Rank r) { return hub->make_transport(r); };
      if (rank == 0) options.interrupted = [&] { return interrupted.load(); };
      const std::unique_ptr<Runtime> runtime = Runtime::create(std::move(options)).value();
      if (rank == 0) interrupted = true;
      std::byte byte{};
      outcomes[static_cast<std::size_t>(rank)] =
          rank == 0 ? runtime->world().run(Request{}) : runtime->world().recv({&byte, 1, DType::kU8}, 0, 0);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(outcomes[0].code(), Code::kInterrupted) << text_of(outcomes);
  EXPECT_EQ(outcomes[1].code(), Code::kPeerFailure) << text_of(outcomes);
}

}  // namespace
}  // namespace pc::testing
