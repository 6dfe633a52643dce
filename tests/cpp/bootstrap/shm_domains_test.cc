// Which ranks share memory: detected at init, the same on all ranks, and never a reason for init to
// fail.
#include "bootstrap/shm_domains.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/store_keys.h"
#include "shm/local_peers_thread.h"
#include "store/memory.h"
#include "world.h"

namespace pc::testing {
namespace {

constexpr double kWaitLimitS = 20;

// What one rank has found.
struct Found {
  Status status = Status(Code::kInternal, "did not run");
  std::unique_ptr<LocalPeers> local_peers;
  HostMap hosts;
};

// The ranks are threads. Each is on the host that `hosts` names, after rendezvous(). The sets list
// the ranks with a fault.
struct Case {
  std::vector<std::string> hosts;
  std::string transport = "auto";
  std::set<Rank> no_place = {};  // ranks that have no socket
  std::set<Rank> gone = {};      // ranks with endpoints that are not reachable
  std::set<Rank> absent = {};    // ranks that never start
  std::set<Rank> stopped = {};   // ranks interrupted by Ctrl-C
  double timeout_s = kWaitLimitS;
};

std::vector<Found> find(const Case& given) {
  const Rank size = static_cast<Rank>(given.hosts.size());
  MemoryStore store;
  std::vector<Result<FdExchangeListener>> places;
  WorldInfo world_info;
  world_info.transport = given.transport;
  world_info.world = "w";
  for (Rank rank = 0; rank < size; ++rank) {
    places.push_back(given.no_place.contains(rank)
                         ? Result<FdExchangeListener>(Status(Code::kSystem, "no socket here"))
                         : FdExchangeListener::open());
    const bool gone = given.gone.contains(rank);
    FdEndpoint endpoint = places.back().is_ok() ? places.back().value().endpoint() : FdEndpoint{};
    if (gone) endpoint.name[0] ^= std::byte{1};
    world_info.endpoints.push_back(places.back().is_ok() ? to_text(endpoint) : "");
    HostMap::Entry entry;
    entry.host_key = given.hosts[static_cast<std::size_t>(rank)];
    entry.domain = rank;
    world_info.hosts.ranks.push_back(entry);
  }
  std::vector<Found> found(given.hosts.size());
  std::vector<std::thread> ranks;
  for (Rank rank = 0; rank < size; ++rank) {
    if (given.absent.contains(rank)) continue;
    ranks.emplace_back([&, rank] {
      const std::size_t i = static_cast<std::size_t>(rank);
      RuntimeOptions options;
      options.rank = rank;
      options.size = size;
      WorldInfo own = world_info;
      const std::function<bool()> stopped = [&] { return given.stopped.contains(rank); };
      const WaitContext context{Deadline::after(given.timeout_s), nullptr, &stopped};
      Result<std::unique_ptr<LocalPeers>> got = find_local_peers(store, options, places[i], own, context);
      found[i].status = got.status();
      if (got.is_ok()) found[i].local_peers = std::move(got).value();
      found[i].hosts = own.hosts;
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return found;
}

// Checks that all ranks have found `domains`, that a rank which is alone in its domain has a
// reason, and that no other rank has one.
void must_be(const std::vector<Found>& found, const std::vector<Rank>& domains) {
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_TRUE(found[i].status.is_ok()) << i << ": " << found[i].status.to_string();
    for (std::size_t rank = 0; rank < domains.size(); ++rank) {
      const HostMap::Entry& entry = found[i].hosts.ranks[rank];
      const bool alone = std::count(domains.begin(), domains.end(), domains[rank]) == 1;
      EXPECT_EQ(entry.domain, domains[rank]) << "of rank " << rank << " by rank " << i;
      EXPECT_EQ(entry.why_alone.empty(), !alone) << entry.why_alone;
      EXPECT_EQ(entry.why_alone, found[0].hosts.ranks[rank].why_alone);
      const bool together = !alone && domains[rank] == domains[i];
      EXPECT_EQ(found[i].local_peers && found[i].local_peers->has(static_cast<Rank>(rank)), together)
          << rank << i;
    }
  }
}

// Every rank writes one byte, and every local peer reads it.
void must_share(const std::vector<Found>& found) {
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i].local_peers) found[i].local_peers->grow(1).value().memory[0] = static_cast<std::byte>(i + 1);
  }
  for (const Found& each : found) {
    for (std::size_t i = 0; each.local_peers && i < found.size(); ++i) {
      const Rank rank = static_cast<Rank>(i);
      if (!each.local_peers->has(rank)) continue;
      EXPECT_EQ(each.local_peers->map(rank, LocalPeers::kFirstNbytes, 1).value()[0],
                static_cast<std::byte>(i + 1));
    }
  }
}

TEST(ShmDomains, ranks_of_one_host_are_one) {
  const std::vector<Found> found = find({.hosts = {"a", "a", "a", "a", "a"}});
  must_be(found, {0, 0, 0, 0, 0});
  must_share(found);
}

TEST(ShmDomains, every_host_is_a_domain_and_every_rank_knows_all_domains) {
  const std::vector<Found> found = find({.hosts = {"a", "b", "a", "b", "c", "b"}});
  must_be(found, {0, 1, 0, 1, 4, 1});
  must_share(found);
  EXPECT_EQ(found[0].hosts.ranks[4].why_alone, "no other rank is on its host");
}

TEST(ShmDomains, ranks_that_are_alone_on_their_hosts_wait_for_no_rank) {
  const std::vector<Found> found = find({.hosts = {"a", "b"}, .absent = {1}});
  EXPECT_TRUE(found[0].status.is_ok());
  EXPECT_EQ(found[0].local_peers, nullptr);
}

TEST(ShmDomains, tcp_shares_no_memory) {
  const std::vector<Found> found = find({.hosts = {"a", "a"}, .transport = "tcp"});
  must_be(found, {0, 1});
  EXPECT_TRUE(has(found[0].hosts.ranks[1].why_alone, "tcp"));
}

TEST(ShmDomains, a_leader_that_cannot_lead_leaves_all_of_its_host_alone_and_no_other) {
  const std::vector<Found> found = find({.hosts = {"a", "a", "b", "b"}, .no_place = {0}});
  must_be(found, {0, 1, 2, 2});
  for (const std::size_t rank : {0, 1}) {
    const std::string& why = found[3].hosts.ranks[rank].why_alone;
    EXPECT_TRUE(has(why, "rank 0") && has(why, "no socket here")) << why;
  }
}

TEST(ShmDomains, ranks_that_cannot_reach_their_leader_are_alone_and_say_why) {
  const std::vector<Found> found = find({.hosts = {"a", "a", "a"}, .gone = {0}});
  must_be(found, {0, 1, 2});
  EXPECT_TRUE(has(found[0].hosts.ranks[2].why_alone, "network namespace"))
      << found[0].hosts.ranks[2].why_alone;
  EXPECT_TRUE(has(found[1].hosts.ranks[0].why_alone, "no other rank")) << found[1].hosts.ranks[0].why_alone;
}

TEST(ShmDomains, shm_is_refused_on_every_rank_where_not_all_share_memory) {
  for (const Case& given : {Case{.hosts = {"a", "a", "b"}, .transport = "shm"},
                            Case{.hosts = {"a", "a", "a"}, .transport = "shm", .gone = {0}}}) {
    for (const Found& each : find(given)) {
      EXPECT_EQ(each.status.code(), Code::kUnsupported) << each.status.to_string();
      EXPECT_TRUE(has(each.status.message(), "auto")) << "what to do instead";
      EXPECT_TRUE(has(each.status.message(), given.gone.empty() ? "2 hosts" : "rank 2: it cannot reach"))
          << each.status.message();
    }
  }
  for (const Found& each : find({.hosts = {"a", "b"}, .transport = "shm"}))
    EXPECT_EQ(each.status.code(), Code::kUnsupported) << "of ranks that are alone on their hosts";
  must_be(find({.hosts = {"a", "a", "a"}, .transport = "shm"}), {0, 0, 0});
}

TEST(ShmDomains, an_interrupt_at_rank_0_does_not_wait_for_other_hosts) {
  const TimePoint began = std::chrono::steady_clock::now();
  const std::vector<Found> found = find({.hosts = {"b", "b", "a", "a"}, .absent = {1, 2, 3}, .stopped = {0}});
  EXPECT_EQ(found[0].status.code(), Code::kInterrupted) << found[0].status.to_string();
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
}

TEST(ShmDomains, a_rank_that_went_silent_is_named_on_every_rank) {
  const std::vector<Found> found = find({.hosts = {"a", "a", "b", "a"}, .absent = {3}, .timeout_s = 1});
  for (const std::size_t rank : {0, 1, 2}) {
    EXPECT_EQ(found[rank].status.code(), Code::kTimeout) << found[rank].status.to_string();
    EXPECT_TRUE(has(found[rank].status.message(), "rank 3")) << found[rank].status.message();
  }
}

TEST(ShmDomains, nonsense_in_the_store_is_a_mismatch) {
  for (const char* nonsense : {"", "1\t0", "7\t0\t", "1\t2\t", "x\t0\t", "1\t-1\t"}) {
    MemoryStore store;
    RuntimeOptions options;
    options.rank = 2;
    options.size = 3;
    WorldInfo world_info;
    world_info.world = "w";
    world_info.transport = "auto";
    world_info.endpoints.resize(3);
    world_info.hosts.ranks.resize(3);
    for (std::size_t i = 0; i < 3; ++i) world_info.hosts.ranks[i].host_key = i < 2 ? "a" : "b";
    ASSERT_TRUE(store.set(Keys(options).domains("w"), nonsense, Deadline::after(1)).is_ok());
    EXPECT_EQ(
        find_local_peers(store, options, Status(Code::kSystem, "none"), world_info, {Deadline::after(5)})
            .status()
            .code(),
        Code::kMismatch);
  }
}

RuntimeOptions options_of(Rank rank, Rank size, const std::shared_ptr<Store>& store) {
  RuntimeOptions options;
  options.rank = rank;
  options.size = size;
  options.store = store;
  options.timeout_s = kWaitLimitS;
  return options;
}

// Creates all runtimes, runs `body` and shuts them down.
Outcomes run_all(std::vector<RuntimeOptions> all, const std::function<Status(Runtime&)>& body) {
  Outcomes outcomes(all.size());
  std::vector<std::thread> ranks;
  for (std::size_t i = 0; i < all.size(); ++i) {
    ranks.emplace_back([&, i] {
      WorldOptions world;
      outcomes[i] =
          run_rank(std::move(all[i]), world, [&](Runtime& runtime, Communicator&) { return body(runtime); });
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return outcomes;
}

Status domains_are(const Runtime& runtime, const std::vector<Rank>& domains) {
  std::string text;
  for (std::size_t rank = 0; rank < domains.size(); ++rank) {
    const HostMap::Entry& entry = runtime.hosts().ranks[rank];
    if (entry.domain != domains[rank]) text += "rank " + std::to_string(rank) + ": " + entry.why_alone;
  }
  return text.empty() ? Status::ok() : Status(Code::kInternal, "wrong domain: " + text);
}

TEST(ShmDomains, a_runtime_knows_them) {
  const auto store = std::make_shared<MemoryStore>();
  std::vector<RuntimeOptions> all;
  for (Rank rank = 0; rank < 3; ++rank) all.push_back(options_of(rank, 3, store));
  const Outcomes outcomes = run_all(std::move(all), [](Runtime& r) { return domains_are(r, {0, 0, 0}); });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
}

TEST(ShmDomains, the_transport_that_rank_0_requests_is_that_of_all) {
  for (const bool first_says_tcp : {false, true}) {
    const auto store = std::make_shared<MemoryStore>();
    std::vector<RuntimeOptions> all = {options_of(0, 2, store), options_of(1, 2, store)};
    all[first_says_tcp ? 0 : 1].transport = "tcp";
    const std::vector<Rank> domains = first_says_tcp ? std::vector<Rank>{0, 1} : std::vector<Rank>{0, 0};
    const Outcomes outcomes = run_all(std::move(all), [&](Runtime& r) { return domains_are(r, domains); });
    EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
  }
}

TEST(ShmDomains, ranks_that_are_threads_share_the_memory_that_they_are_given) {
  const std::shared_ptr<InprocHub> hub = InprocHub::create(2);
  const std::shared_ptr<ThreadHost> host = ThreadHost::create(2).value();
  for (const bool given : {true, false}) {
    const std::shared_ptr<InprocHub> its_hub = InprocHub::create(2);
    const auto store = std::make_shared<MemoryStore>();
    std::vector<RuntimeOptions> all = {options_of(0, 2, store), options_of(1, 2, store)};
    for (RuntimeOptions& each : all) {
      each.make_transport = [its_hub](Rank r) { return its_hub->make_transport(r); };
      if (given) each.make_local_peers = [host](Rank r) { return host->local_peers_of(r); };
    }
    const std::vector<Rank> domains = given ? std::vector<Rank>{0, 0} : std::vector<Rank>{0, 1};
    const Outcomes outcomes = run_all(std::move(all), [&](Runtime& r) { return domains_are(r, domains); });
    EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
  }
}

TEST(ShmDomains, leave_nothing_in_the_store) {
  const auto store = std::make_shared<MemoryStore>();
  std::vector<RuntimeOptions> all;
  std::string world;
  for (Rank rank = 0; rank < 2; ++rank) {
    all.push_back(options_of(rank, 2, store));
    all.back().before_leaving = [store, options = all.back()] { leave_rendezvous(*store, options); };
  }
  const Keys keys(all[0]);
  const Outcomes outcomes = run_all(std::move(all), [&](Runtime& runtime) {
    if (runtime.world().rank() == 0) world = runtime.name();
    PC_TRY(store->wait(keys.domains(runtime.name()), Deadline::after(1)));
    return runtime.world().run(Request{});
  });
  EXPECT_TRUE(all_ok(outcomes)) << text_of(outcomes);
  for (const std::string& key : {keys.domains(world), keys.memory_of(world, 1), keys.domain_of(world, 0)})
    EXPECT_EQ(store->get(key, Deadline::after(0)).status().code(), Code::kTimeout) << key;
}

}  // namespace
}  // namespace pc::testing
