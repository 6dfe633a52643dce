// How a group ends, and what its callers are told about it. The first failure ends the group: what the peers have received
// of that call is unknown, so nothing later could be trusted.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "comm/runtime.h"
#include "engine/executor.h"
#include "transport/reactor.h"

namespace pc {

// Shared by a group and the Work that it launched, which may outlive it. Thread-safety: all methods.
class GroupEnding {
 public:
  // What abort() ends: not owned, not touched once abort() has returned. Null if the group has one rank.
  struct Parts {
    Transport* transport = nullptr;
    Reactor* reactor = nullptr;
    Executor* executor = nullptr;
  };
  GroupEnding(const Parts& parts, Rank rank, const std::vector<Rank>& world_ranks, const HostMap* hosts);

  // Not 0: the group has ended. For WaitContext.
  const std::atomic<uint32_t>* word() const { return &word_; }
  // kAborted naming the first cause; OK while the group is usable.
  Status before() const { return word_.load(std::memory_order_acquire) == 0 ? Status::ok() : cause(); }
  void abort(const Status& why) noexcept;
  // Turns how a call that began at `began` ended into what its caller is told.
  Status told(const Status& ended, const std::string& operation, TimePoint began) const;
  // Likewise, and ends the group.
  Status conclude(const Status& ended, const std::string& operation, TimePoint began);

 private:
  Status cause() const;
  std::string advice(const Status& ended) const;

  const Parts parts_;
  const Rank rank_;
  std::vector<std::string> names_;  // of the ranks: "rank 3 (host a, pid 5)"
  std::atomic<uint32_t> word_{0};   // not 0: cause_ is set for good
  mutable std::mutex mutex_;        // guards cause_, and is held until everything has been ended by it
  Status cause_;
};

}  // namespace pc
