// Who sleeps among the ranks that share memory, and how to wake him. Nobody pays a system call while all are awake: who writes
// looks whether the reader sleeps, and notifies only then.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "shm/segment_header.h"
#include "transport/reactor.h"

namespace pc {

// Of one rank. In a reactor it ends the sleep of whoever waits there, and wakes the waits that are listed. Thread-safety: all methods.
class ShmWakeup final : public Pollable {
 public:
  static Result<std::unique_ptr<ShmWakeup>> create(LocalPeers& local_peers, Rank rank, Rank world_size);
  ShmWakeup(const ShmWakeup&) = delete;
  ShmWakeup& operator=(const ShmWakeup&) = delete;
  ~ShmWakeup() = default;

  SegmentHeader& own_header() { return own_; }
  std::size_t world_size() const { return headers_.size(); }
  // kMismatch: it is there and has another layout. Its numbers mean nothing while its magic is 0.
  Result<const SegmentHeader*> header_of_rank(Rank rank);
  const SegmentHeader& known_header_of(Rank rank) const {
    return *headers_[static_cast<std::size_t>(rank)];
  }  // later

  // Where this rank and its known local peers wait, in the order of their ranks; -1: not known. See core
  // balancer.h. Returns which of them is this rank's.
  std::size_t find_cores(std::vector<int>& cores);
  void set_core(int core) { own_.core.store(int64_t{core} + 1, std::memory_order_relaxed); }

  // After a write that a local peer may sleep for; the write and this are sequentially consistent.
  // header_of_rank() came before.
  void wake(Rank rank) {
    const uint32_t sleep = headers_[static_cast<std::size_t>(rank)]->asleep.load(std::memory_order_seq_cst);
    if (sleep != 0) [[unlikely]]
      notify_once(rank, sleep);
  }
  // While it is listed, whatever a local peer writes for this rank completes `queue` with `token`. What was
  // written before must be looked at once more, after list().
  void list(CompletionQueue& queue, uint64_t token);
  void unlist(CompletionQueue& queue);

  // ---- Pollable
  std::string_view name() const override { return "doorbell"; }
  std::size_t poll() override;
  int wait_fd() const override { return local_peers_.notify_fd(); }
  bool fall_asleep() override;
  void wake_up() override;

 private:
  ShmWakeup(LocalPeers& local_peers, Rank rank, SegmentHeader& own, Rank world_size);
  void notify_once(Rank rank, uint32_t sleep);
  void begin_sleep();  // mutex_ held
  void stay_awake();   // mutex_ held

  LocalPeers& local_peers_;
  SegmentHeader& own_;
  std::vector<const SegmentHeader*> headers_;  // by world rank, once known; each is set before it is used
  std::vector<std::atomic<uint32_t>>
      notified_;  // by world rank: the sleep for which we have notified already
  std::atomic<uint32_t> sleeping_{0}, idle_polls_{0};
  std::mutex mutex_;     // guards what follows, and headers_ while they are found
  uint32_t sleep_ = 0;   // the number of the last one
  uint32_t sleeps_ = 0;  // between fall_asleep() and wake_up()
  struct Sleeper {
    CompletionQueue* queue;
    uint64_t token;
  };
  std::vector<Sleeper> sleepers_;
};

}  // namespace pc
