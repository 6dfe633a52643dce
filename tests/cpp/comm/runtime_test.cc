// How ranks find each other, and which errors they get when they cannot.
#include "comm/runtime.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <mutex>
#include <set>
#include <thread>

#include "base/fd.h"
#include "bootstrap/rendezvous.h"
#include "store/memory.h"
#include "transport/tcp/tcp.h"
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
Result<std::unique_ptr<Runtime>> create(RuntimeOptions options) {
  const Deadline deadline = Deadline::after(options.timeout_s);
  return Runtime::create(std::move(options), deadline);
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
          create(options_of(ranks[i].first, ranks[i].second, store, timeout_s));
      outcomes[i] = created.status();
      if (created.is_ok()) runtimes[i] = std::move(created).value();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

TEST(Runtime, one_rank_needs_neither_store_nor_transport) {
  const std::unique_ptr<Runtime> runtime = create(options_of(0, 1, nullptr, 5)).value();
  EXPECT_EQ(runtime->world().size(), 1);
  EXPECT_EQ(runtime->hosts().local_size, 1);
  EXPECT_TRUE(runtime->world().run(Request{}).is_ok());
  EXPECT_EQ(runtime->world().launch(Request{}).value(), nullptr);
  EXPECT_TRUE(has(Status(Code::kInternal, runtime->world().explain({Collective::kAllreduce, 8}).value()),
                  "nothing to do"));
  EXPECT_TRUE(runtime->shutdown(Deadline::after(1)).is_ok());
  EXPECT_EQ(runtime->world().run(Request{}).code(), Code::kNotInitialized);
}

TEST(Runtime, impossible_options_are_refused) {
  const auto store = std::make_shared<MemoryStore>();
  for (const auto& [rank, size] : {std::pair{0, 0}, {2, 2}, {-1, 2}}) {
    EXPECT_EQ(create(options_of(rank, size, store, 1)).status().code(), Code::kInvalidArgument);
  }
  EXPECT_EQ(create(options_of(0, 2, nullptr, 1)).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(create(options_of(0, 2, store, -1)).status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(has(create(options_of(0, 65536, store, 0.1)).status(), "65535"));
  RuntimeOptions pigeon = options_of(0, 2, store, 1);
  pigeon.transport = "pigeon";
  EXPECT_TRUE(has(create(pigeon).status(), "pigeon"));
}

TEST(Runtime, no_two_ranks_and_threads_reserve_one_group_id) {
  std::mutex mutex;
  std::set<uint32_t> all{0};  // the world's id
  const Outcomes outcomes = run_world({.size = 3}, [&](Runtime& runtime, Communicator&) -> Status {
    const auto reserve = [&] {
      for (const uint32_t count : {1U, 3U, 1U}) {
        const uint32_t first = runtime.reserve_group_ids(count).value();
        const std::lock_guard lock(mutex);
        for (uint32_t i = 0; i < count; ++i) all.insert(first + i);
      }
    };
    auto beside = std::async(std::launch::async, reserve);
    reserve();
    beside.get();
    PC_TRY(runtime.reserve_group_ids(1'000'000).status());
    const Status too_many = runtime.reserve_group_ids(1U << 30).status();
    return too_many.code() == Code::kUnsupported ? Status::ok() : Status(Code::kSystem, too_many.to_string());
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
  EXPECT_EQ(all.size(), 1U + 3 * 2 * 5);
}

TEST(Runtime, at_log_level_info_one_line_describes_how_a_rank_is_connected) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const Fd reads(ends[0]);
  Fd writes(ends[1]);
  const auto store = std::make_shared<MemoryStore>();
  std::vector<std::unique_ptr<Runtime>> runtimes(2);
  std::vector<std::thread> ranks;
  for (Rank rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      RuntimeOptions options = options_of(rank, 2, store, 20);
      if (rank == 1) options.log = Logger(LogLevel::kInfo, -1, writes.get());
      runtimes[static_cast<std::size_t>(rank)] = create(std::move(options)).value();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  writes.reset();
  char text[4096];
  const ssize_t count = ::read(reads.get(), text, sizeof text);
  ASSERT_GT(count, 0);
  const std::string line(text, static_cast<std::size_t>(count));
  for (const char* part : {"[rank 1] info", "rank 1 of 2", "transport shm", "allreduce:", "127.0.0.1:"}) {
    EXPECT_NE(line.find(part), std::string::npos) << part << " in: " << line;
  }
}

TEST(Runtime, init_has_the_deadline_it_is_given_and_not_that_of_the_calls) {
  const Status status =
      Runtime::create(options_of(0, 2, std::make_shared<MemoryStore>(), 600), Deadline::after(0.1)).status();
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_GE(status.elapsed_s(), 0.0);
  EXPECT_LT(status.elapsed_s(), 10.0) << status.to_string();
}

TEST(Runtime, ranks_that_never_join_are_named_on_every_rank_that_joined) {
  const Outcomes outcomes = create_all({{0, 4}, {2, 4}}, 0.4);
  for (const Status& s : outcomes) {
    EXPECT_TRUE(s.code() == Code::kTimeout || s.code() == Code::kAborted) << text_of(outcomes);
    EXPECT_TRUE(has(s, "never came: 1, 3")) << text_of(outcomes);
    EXPECT_EQ(s.peer(), 1) << text_of(outcomes);
    EXPECT_TRUE(has(s, "init on rank")) << text_of(outcomes);
  }
}

TEST(Runtime, ranks_that_do_not_join_for_long_are_named_in_a_warning) {
  const auto store = std::make_shared<MemoryStore>();
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const Fd reads(ends[0]);
  Fd writes(ends[1]);
  std::vector<std::thread> ranks;
  for (const Rank rank : {0, 2}) {
    ranks.emplace_back([&, rank] {
      RuntimeOptions options = options_of(rank, 3, store, 1);
      options.warn_after_s = 0.05;
      options.log = Logger(LogLevel::kWarning, rank, writes.get());
      EXPECT_EQ(create(std::move(options)).status().code(), Code::kTimeout);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  writes.reset();
  char text[4096];
  const std::string said(
      text, static_cast<std::size_t>(std::max<ssize_t>(::read(reads.get(), text, sizeof text), 0)));
  const std::string warning = "warning: init waits for long: of 3 ranks these have not come: 1\n";
  EXPECT_NE(said.find("[rank 0] " + warning), std::string::npos) << said;
  EXPECT_NE(said.find("[rank 2] " + warning), std::string::npos) << said;
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 2) << said;
}

// Answers this number of requests, then is unreachable.
class StoreThatGoes final : public Store {
 public:
  explicit StoreThatGoes(int requests) : left_(requests) {}

 private:
  Result<StoreAnswer> run(const StoreCall& request, StoreDeadline deadline) override {
    if (gone()) return unreachable();
    return inner_.call(request, deadline);
  }
  bool gone() { return left_-- <= 0; }
  static Status unreachable() { return Status(Code::kTimeout, "cannot reach the store at 10.0.0.1:1"); }
  MemoryStore inner_;
  std::atomic<int> left_;
};

TEST(Runtime, a_lost_store_is_not_reported_as_ranks_that_never_joined) {
  for (const Rank rank : {0, 1}) {
    const Status status = create(options_of(rank, 2, std::make_shared<StoreThatGoes>(2), 1)).status();
    EXPECT_EQ(status.code(), Code::kTimeout);
    EXPECT_TRUE(has(status, "cannot reach the store")) << status.to_string();
    EXPECT_FALSE(has(status, "never came")) << status.to_string();
  }
}

TEST(Runtime, an_interrupt_ends_connecting) {
  const auto store = std::make_shared<MemoryStore>();
  std::thread leaves([&] {
    RuntimeOptions options = options_of(1, 2, store, 5);
    options.make_transport = [](Rank rank) {  // publishes its address and then cannot connect
      std::unique_ptr<Transport> transport = make_tcp_transport({.rank = rank, .size = 2}).value();
      transport->abort(Status(Code::kAborted, "it leaves"));
      return transport;
    };
    EXPECT_FALSE(create(std::move(options)).is_ok());
  });
  RuntimeOptions options = options_of(0, 2, store, 5);
  options.interrupted = [] { return true; };
  EXPECT_EQ(create(std::move(options)).status().code(), Code::kInterrupted);
  leaves.join();
}

TEST(Runtime, the_store_is_released_once_all_ranks_are_connected) {
  const std::shared_ptr<InprocHub> hub = InprocHub::create(2);
  const auto store = std::make_shared<MemoryStore>();
  std::vector<std::unique_ptr<Runtime>> runtimes(2);
  std::vector<std::thread> ranks;
  for (Rank rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      RuntimeOptions options = options_of(rank, 2, store, 20);
      options.make_transport = [&](Rank r) { return hub->make_transport(r); };
      runtimes[static_cast<std::size_t>(rank)] = create(std::move(options)).value();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(store.use_count(), 1);
}

TEST(Runtime, a_rank_that_is_given_twice_is_refused) {
  const Outcomes outcomes = create_all({{0, 2}, {1, 2}, {1, 2}}, 5);
  EXPECT_EQ(std::count_if(outcomes.begin(), outcomes.end(), [](const Status& s) { return s.is_ok(); }), 2)
      << text_of(outcomes);
  EXPECT_TRUE(has(outcomes[1], "two processes say that they are rank 1") ||
              has(outcomes[2], "two processes say that they are rank 1"))
      << text_of(outcomes);
}

TEST(Runtime, a_rank_that_is_given_twice_instead_of_another_is_reported_on_all) {
  const auto began = std::chrono::steady_clock::now();
  const Outcomes outcomes = create_all({{0, 3}, {1, 3}, {1, 3}}, 20);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10)) << "not at the deadline";
  for (const Status& s : outcomes)
    EXPECT_TRUE(has(s, "two processes say that they are rank 1: process")) << text_of(outcomes);
  EXPECT_EQ(outcomes[0].peer(), 1) << text_of(outcomes);
}

TEST(Runtime, an_init_that_failed_can_be_tried_again_through_the_same_store) {
  const auto store = std::make_shared<MemoryStore>();
  EXPECT_EQ(create(options_of(0, 2, store, 0.3)).status().code(), Code::kTimeout);
  std::unique_ptr<Runtime> zero, one;
  std::thread other([&] {
    Result<std::unique_ptr<Runtime>> made = create(options_of(0, 2, store, 10));
    EXPECT_TRUE(made.is_ok()) << made.status().to_string();
    if (made.is_ok()) zero = std::move(made).value();
  });
  // Rank 1 may still read that rank 0 has given up, and then retries as well.
  for (const Deadline deadline = Deadline::after(10); one == nullptr && !deadline.expired();) {
    Result<std::unique_ptr<Runtime>> made = create(options_of(1, 2, store, 10));
    if (made.is_ok()) one = std::move(made).value();
  }
  other.join();
  EXPECT_TRUE(zero != nullptr && one != nullptr);
}

TEST(Runtime, a_second_program_meets_through_the_same_store) {
  const auto store = std::make_shared<MemoryStore>();
  for (int program = 0; program < 2; ++program) {
    std::vector<std::thread> threads;
    for (Rank rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        RuntimeOptions options = options_of(rank, 2, store, 10);
        options.before_leaving = [store, options] { leave_rendezvous(*store, options); };
        Result<std::unique_ptr<Runtime>> made = create(options);
        EXPECT_TRUE(made.is_ok()) << made.status().to_string();
        if (made.is_ok()) {
          EXPECT_TRUE(made.value()->shutdown(Deadline::after(10)).is_ok());
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(Runtime, ranks_that_disagree_about_the_size_get_an_error) {
  const Outcomes outcomes = create_all({{0, 2}, {1, 3}}, 5);
  for (const Status& s : outcomes) EXPECT_TRUE(has(s, "give all the same size")) << text_of(outcomes);
}

TEST(Runtime, a_bad_tuning_text_of_rank_0_is_reported_everywhere) {
  const Outcomes outcomes = run_world({.size = 2, .tune = "allreduce:0-64k:magic"},
                                      [](Runtime&, Communicator&) { return Status::ok(); });
  for (const Status& s : outcomes)
    EXPECT_TRUE(has(s, "magic") && has(s, "recursive_doubling")) << text_of(outcomes);
}

TEST(Runtime, rank_0_tunes_all_ranks) {
  const Outcomes outcomes = run_world(
      {.size = 3, .tune = "allreduce:0-inf:ring"}, [](Runtime& runtime, Communicator& group) -> Status {
        PC_ASSIGN_OR_RETURN(const std::string text, group.explain({Collective::kAllreduce, 8}));
        const HostMap& hosts = runtime.hosts();
        const bool right = text.find("ring") != std::string::npos &&
                           text.find("transport: inproc") != std::string::npos && hosts.local_size == 3 &&
                           hosts.local_rank == group.rank() && hosts.ranks.size() == 3;
        return right ? Status::ok() : Status(Code::kInternal, text);
      });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

// Every rank's explanation of a call of 40 KiB must contain `wanted` and must not contain
// `unwanted`.
Body explains(const std::string& wanted, const std::string& unwanted) {
  return [=](Runtime&, Communicator& group) -> Status {
    PC_ASSIGN_OR_RETURN(const std::string text, group.explain({Collective::kAllreduce, 40 * 1024}));
    const bool right = text.find(wanted) != std::string::npos && text.find(unwanted) == std::string::npos;
    return right ? Status::ok() : Status(Code::kInternal, text);
  };
}

TEST(Runtime, what_rank_0_has_measured_counts_for_all_whatever_the_others_have) {
  const Outcomes plans =
      run_world({.size = 2,
                 .tuning = "2:tcp=allreduce:0-64k:recursive_doubling|3:tcp=allreduce:0-64k:rabenseifner",
                 .others_tuning = "2:tcp=allreduce:0-64k:rabenseifner"},
                explains("allreduce:0-64k:recursive_doubling, measured here\nprofile:   given to the runtime",
                         "PYCOLLECTIVE_TUNE"));
  EXPECT_TRUE(all_ok(plans)) << text_of(plans);
  const Outcomes shared = run_world(
      {.over = Over::kShared, .size = 2, .tuning = "2:combined_at_once=1k", .others_tuning = "2:ring=16m"},
      explains("combined_at_once=1k", "at once"));
  EXPECT_TRUE(all_ok(shared)) << text_of(shared);
  const Outcomes usual =
      run_world({.over = Over::kShared, .size = 2, .others_tuning = "2:combined_at_once=1k"},
                explains("at once", "profile"));
  EXPECT_TRUE(all_ok(usual)) << text_of(usual);
}

TEST(Runtime, measured_rows_stand_behind_those_of_the_user_and_leave_shared_memory_on) {
  const Outcomes named = run_world(
      {.size = 2, .tune = "allreduce:0-inf:ring", .tuning = "2:tcp=allreduce:0-inf:recursive_doubling"},
      explains("fits is allreduce:0-inf:ring", "measured here"));
  EXPECT_TRUE(all_ok(named)) << text_of(named);
  const Outcomes measured =
      run_world({.over = Over::kShared, .size = 2, .tuning = "2:tcp=allreduce:0-inf:recursive_doubling"},
                explains("algorithm: shared_memory", "recursive_doubling ("));
  EXPECT_TRUE(all_ok(measured)) << text_of(measured);
}

TEST(Runtime, a_profile_that_cannot_be_read_is_reported_everywhere) {
  for (const char* wrong : {"2:rings=8m", "ring=8m", "2:ring", "x:ring=8m", "2:least_chunk=1m"}) {
    const Outcomes outcomes =
        run_world({.size = 2, .tuning = wrong}, [](Runtime&, Communicator&) { return Status::ok(); });
    for (const Status& s : outcomes) EXPECT_FALSE(s.is_ok()) << wrong;
  }
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
      const std::unique_ptr<Runtime> runtime = create(std::move(options)).value();
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
