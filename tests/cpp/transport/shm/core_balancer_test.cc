// Ranks that the kernel has placed on one core move apart. No other rank is moved, and no rank
// loses a core of its affinity.
#include "transport/shm/core_balancer.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <optional>
#include <thread>
#include <vector>

#include "shm/local_peers_thread.h"

namespace pc {
namespace {

using Cores = std::vector<int>;

TEST(CoreBalancer, is_better_where_two_ranks_fewer_are) {
  struct Case {
    Cores cores;
    std::size_t self;
    Cores usable;
    std::optional<int> better;
  };
  const std::vector<Case> cases = {
      {{0, 0}, 1, {0, 1}, 1},
      {{0, 0}, 0, {0, 1}, std::nullopt},  // the last of the ranks that share a core moves
      {{0, 1}, 1, {0, 1}, std::nullopt},
      {{5, 5}, 1, {5}, std::nullopt},  // bound to it
      {{5, 5}, 1, {5, 9}, 9},
      {{0, 0, 1}, 1, {0, 1}, std::nullopt},  // two ranks here and one there cannot be improved
      {{0, 0, 0, 1}, 2, {0, 1}, 1},
      {{0, 0, 0, 1}, 1, {0, 1}, std::nullopt},
      {{0, 0, 1, 1}, 3, {0, 1}, std::nullopt},
      {{0, 0, 1}, 1, {0, 1, 2, 3}, 2},
      {{-1, 0}, 1, {0, 1}, std::nullopt},  // no other rank is known to be here
      {{0, -1}, 1, {0, 1}, std::nullopt},  // the core of this rank is unknown
      {{0, 0}, 1, {}, std::nullopt},
  };
  for (const Case& each : cases) {
    EXPECT_EQ(better_core(each.cores, each.self, each.usable), each.better)
        << "rank " << each.self << " of " << each.cores.size() << " on core " << each.cores[each.self];
  }
}

// Two ranks of this process.
struct Pair {
  std::shared_ptr<ThreadHost> host = ThreadHost::create(2).value();
  std::unique_ptr<LocalPeers> local_peers[2] = {host->local_peers_of(0), host->local_peers_of(1)};
  std::unique_ptr<ShmWakeup> wakeups[2] = {ShmWakeup::create(*local_peers[0], 0, 2).value(),
                                           ShmWakeup::create(*local_peers[1], 1, 2).value()};
  CoreBalancer balancers[2] = {CoreBalancer(*wakeups[0]), CoreBalancer(*wakeups[1])};
  Pair() {
    EXPECT_TRUE(wakeups[0]->header_of_rank(1).is_ok());
    EXPECT_TRUE(wakeups[1]->header_of_rank(0).is_ok());
  }
  int core_of(std::size_t rank) {
    wakeups[0]->find_cores(cores);
    return cores[rank];
  }
  Cores cores;
};

std::size_t count_of(const cpu_set_t& set) { return static_cast<std::size_t>(CPU_COUNT(&set)); }

TEST(CoreBalancer, of_a_rank_is_known_to_its_local_peers) {
  Pair pair;
  pair.wakeups[1]->set_core(77);
  EXPECT_EQ(pair.core_of(1), 77);
  EXPECT_EQ(pair.wakeups[1]->find_cores(pair.cores), 1U);
}

TEST(CoreBalancer, moves_the_last_of_two_threads_off_a_shared_core) {
  cpu_set_t usable;
  if (::sched_getaffinity(0, sizeof usable, &usable) != 0) GTEST_SKIP() << "this machine has too many cores";
  Pair pair;
  int shared = -1;
  std::thread waiting([&] {
    shared = ::sched_getcpu();
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET(shared, &here);
    EXPECT_EQ(::sched_setaffinity(0, sizeof here, &here), 0);  // bound until all is ready
    pair.wakeups[0]->set_core(shared);
    pair.balancers[1].preempted();
    EXPECT_EQ(pair.core_of(1), shared);  // the thread is bound to the core

    CoreBalancer free(*pair.wakeups[1]);
    EXPECT_EQ(::sched_setaffinity(0, sizeof usable, &usable), 0);
    free.preempted();
    EXPECT_EQ(pair.core_of(1) == shared, count_of(usable) == 1);
    cpu_set_t after;
    EXPECT_EQ(::sched_getaffinity(0, sizeof after, &after), 0);
    EXPECT_TRUE(CPU_EQUAL(&after, &usable));
  });
  waiting.join();
}

}  // namespace
}  // namespace pc
