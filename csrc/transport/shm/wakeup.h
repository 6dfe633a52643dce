// Tracks which of the ranks that share memory sleep, and wakes them. No rank pays a system call
// while all are awake: a writer checks whether the reader sleeps, and notifies only then.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "shm/segment_header.h"
#include "transport/reactor.h"

namespace pc {

// The wakeup of one rank. As a source of a reactor it ends the sleep of the thread that waits
// there, and completes the listed queues. Thread-safety: all methods.
class ShmWakeup final : public Pollable {
 public:
  static Result<std::unique_ptr<ShmWakeup>> create(LocalPeers& local_peers, Rank rank, Rank world_size);
  ShmWakeup(const ShmWakeup&) = delete;
  ShmWakeup& operator=(const ShmWakeup&) = delete;
  ~ShmWakeup() = default;

  SegmentHeader& own_header() { return own_; }
  std::size_t world_size() const { return headers_.size(); }
  // Returns kMismatch if the header is present and has another layout. The header's numbers mean
  // nothing while its magic is 0.
  Result<const SegmentHeader*> header_of_rank(Rank rank);
  // Valid after header_of_rank().
  const SegmentHeader& known_header_of(Rank rank) const { return *headers_[static_cast<std::size_t>(rank)]; }

  // Fills `cores` with the cores on which this rank and its known local peers wait, in rank order;
  // -1 means not known. See core_balancer.h. Returns the index of this rank.
  std::size_t find_cores(std::vector<int>& cores);
  void set_core(int core) { own_.core.store(int64_t{core} + 1, std::memory_order_relaxed); }

  // Call it after a write to shared memory for which `rank` may be waiting asleep. The write must
  // be sequentially consistent, like the load in this method. header_of_rank(rank) must have been
  // called before.
  void wake(Rank rank) {
    const uint32_t sleep = headers_[static_cast<std::size_t>(rank)]->asleep.load(std::memory_order_seq_cst);
    if (sleep != 0) [[unlikely]]
      notify_once(rank, sleep);
  }
  // While `queue` is listed, each wakeup of this rank by a local peer completes `queue` with
  // `token`. After list(), the caller must check once more for data that was written before.
  void list(CompletionQueue& queue, uint64_t token);
  void unlist(CompletionQueue& queue);

  // ---- Pollable
  std::string_view name() const override { return "wakeup"; }
  std::size_t poll() override;
  int wait_fd() const override { return local_peers_.notify_fd(); }
  bool fall_asleep() override;
  void wake_up() override;

 private:
  ShmWakeup(LocalPeers& local_peers, Rank rank, SegmentHeader& own, Rank world_size);
  void notify_once(Rank rank, uint32_t sleep);
  void begin_sleep();  // mutex_ is held
  void stay_awake();   // mutex_ is held

  LocalPeers& local_peers_;
  SegmentHeader& own_;
  std::vector<const SegmentHeader*> headers_;  // by world rank, once known; each is set before it is used
  // by world rank: the peer's value of `asleep` for which this rank last notified the peer
  std::vector<std::atomic<uint32_t>> notified_;
  std::atomic<uint32_t> sleeping_{0}, idle_polls_{0};
  std::mutex mutex_;     // guards the members below, and headers_ while they are looked up
  uint32_t sleep_ = 0;   // the number of the last sleep
  uint32_t sleeps_ = 0;  // threads between fall_asleep() and wake_up()
  struct Sleeper {
    CompletionQueue* queue;
    uint64_t token;
  };
  std::vector<Sleeper> sleepers_;
};

}  // namespace pc
