#include "transport/shm/core_balancer.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <vector>

namespace pc {
namespace {

constexpr std::chrono::milliseconds kLooks{1};  // the shortest time between two calls of look()
// The pause after a move. It doubles with each further move, because each further move gains less.
constexpr std::chrono::milliseconds kAfterMove{10};
constexpr int kMostDoublings = 2;  // so moves take 0.05 % of the time at most: about 20 us every 40 ms
// after this time without a move, the next move counts as the first one again
constexpr std::chrono::milliseconds kForgotten{200};

void find_cores_in(const cpu_set_t& set, std::vector<int>& cores) {
  cores.clear();
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
}

// Moves this thread to `core` and restores the set of cores that it may use. An unrestricted thread
// must not become restricted: then it could not use cores that its container is given later.
bool move_to(int core, const cpu_set_t& usable) {
  cpu_set_t only, all, now;
  CPU_ZERO(&only);
  CPU_SET(core, &only);
  if (::sched_setaffinity(0, sizeof only, &only) != 0) return false;
  std::memset(&all, 0xFF, sizeof all);
  const bool is_free = ::sched_setaffinity(0, sizeof all, &all) == 0 &&
                       ::sched_getaffinity(0, sizeof now, &now) == 0 && CPU_EQUAL(&now, &usable) != 0;
  if (!is_free) ::sched_setaffinity(0, sizeof usable, &usable);
  return true;
}

}  // namespace

std::optional<int> better_core(std::span<const int> cores, std::size_t self, std::span<const int> usable) {
  const int own = cores[self];
  const std::span<const int> later = cores.subspan(self + 1);
  if (own < 0 || std::find(later.begin(), later.end(), own) != later.end()) return std::nullopt;
  const auto ranks = [&](int core) { return std::count(cores.begin(), cores.end(), core); };
  std::optional<int> best;
  // a move to a core with one rank fewer would only swap the loads of the two cores
  auto least = ranks(own) - 1;
  for (std::size_t i = 0; i < usable.size() && least > 0; ++i) {
    if (const auto there = ranks(usable[i]); there < least) {
      least = there;
      best = usable[i];
    }
  }
  return best;
}

CoreBalancer::CoreBalancer(ShmWakeup& wakeup) : wakeup_(wakeup) { wakeup_.set_core(::sched_getcpu()); }

void CoreBalancer::preempted() {
  const Clock::duration::rep now = Clock::now().time_since_epoch().count();
  Clock::duration::rep next = next_.load(std::memory_order_relaxed);
  const Clock::duration::rep later = now + Clock::duration(kLooks).count();
  if (now >= next && next_.compare_exchange_strong(next, later, std::memory_order_relaxed)) {
    try {
      look();
    } catch (const std::bad_alloc&) {  // the thread stays on its core
    }
  }
}

void CoreBalancer::look() {
  const int own = ::sched_getcpu();
  if (own < 0) return;
  wakeup_.set_core(own);
  const std::unique_lock lock(looking_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  const std::size_t self = wakeup_.find_cores(cores_);
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return;  // there are more cores than a set can hold
  find_cores_in(set, usable_);
  const std::optional<int> core = better_core(cores_, self, usable_);
  if (!core || !move_to(*core, set)) return;
  wakeup_.set_core(*core);
  const Clock::duration now = Clock::now().time_since_epoch();
  const Clock::duration before(moved_.exchange(now.count(), std::memory_order_relaxed));
  const int moves =
      now - before > kForgotten ? 0 : std::min(moves_.load(std::memory_order_relaxed) + 1, kMostDoublings);
  moves_.store(moves, std::memory_order_relaxed);
  next_.store((now + kAfterMove * (1 << moves)).count(), std::memory_order_relaxed);
}

}  // namespace pc
