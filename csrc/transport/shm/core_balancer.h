// Which core a rank waits on. The kernel may put two ranks on one core while another one is idle, and leaves them there for
// seconds: each sleeps while the other one runs, so neither looks busy, and each wakes the other where it runs itself. A call
// then takes 4 us instead of 0.6. So a rank that waits says where, and one that finds itself with too many others moves.
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

// `cores`: where each rank of this host was last seen, -1 if it was not; `self` is one of them. A usable core with two ranks
// fewer than the own one, which has the fewest of all. None if there is none, or if a rank further on will move.
std::optional<int> better_core(std::span<const int> cores, std::size_t self, std::span<const int> usable);

// Of one rank. Moves only the thread that waits, and leaves the cores that it may use as they are. Thread-safety: all methods.
class CoreBalancer final : public CoreWatch {
 public:
  explicit CoreBalancer(ShmWakeup& wakeup);
  void preempted() override;

 private:
  using Clock = std::chrono::steady_clock;
  void look();

  ShmWakeup& wakeup_;
  std::atomic<Clock::duration::rep> next_{0};   // when to look again
  std::atomic<Clock::duration::rep> moved_{0};  // when it last did
  std::atomic<int> moves_{0};                   // shortly after each other
  std::mutex looking_;                          // guards what follows, which keeps its memory
  std::vector<int> cores_, usable_;
};

}  // namespace pc
