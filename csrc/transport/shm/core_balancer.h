// Decides on which core a rank waits. The kernel may place two ranks on one core while another core
// is idle, and leave them there for seconds: each rank sleeps while the other runs, so neither
// looks busy, and each wakes the other on the shared core. A call then takes 4 us instead of 0.6.
// Each waiting rank therefore publishes its core, and a rank moves if too many ranks are on its
// core.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/waiter.h"
#include "transport/shm/wakeup.h"

namespace pc {

// `cores` has the core on which each rank of this host was last seen, or -1 if that is not known;
// `self` is the index of this rank. Returns the usable core with the fewest ranks, if it has at
// least two fewer than this rank's core. Returns nullopt if there is no such core, or if a rank
// with a higher index is on the same core and will move.
std::optional<int> better_core(std::span<const int> cores, std::size_t self, std::span<const int> usable);

// Balances one rank. It moves only the thread that waits, and does not change the set of cores that
// the thread may use. Thread-safety: all methods.
class CoreBalancer final : public CoreWatch {
 public:
  explicit CoreBalancer(ShmWakeup& wakeup);
  void preempted() override;

 private:
  using Clock = std::chrono::steady_clock;
  void look();

  ShmWakeup& wakeup_;
  std::atomic<Clock::duration::rep> next_{0};   // when look() may be called again
  std::atomic<Clock::duration::rep> moved_{0};  // when the thread last moved
  std::atomic<int> moves_{0};                   // number of moves in quick succession
  std::mutex looking_;                          // guards the members below, reused in each look()
  std::vector<int> cores_, usable_;
};

}  // namespace pc
