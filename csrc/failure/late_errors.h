// What comes up about earlier calls of a group, which were done here and turn out to have been wrong, or whose end no caller has
// asked for: the next call raises it, once, and what no call raises is a warning.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>

#include "base/status.h"
#include "base/types.h"

namespace pc {

// Thread-safety: any() from anywhere; the lock of the group's calls guards the rest.
class LateErrors {
 public:
  explicit LateErrors(Rank rank) : rank_(rank) {}

  bool any() const { return any_.load(std::memory_order_acquire) != 0; }  // take() has something to give
  Status take();  // what the next call raises; OK: nothing
  // A call that this rank had completed was wrong. `is_known`: the others have been asked, and no more comes.
  void add(uint64_t sequence, const Status& why, bool is_known);
  // How an asynchronous call failed for whose end no caller asks. `is_last`: no call follows, so few are kept. False: too many are.
  bool add_unobserved(const Status& outcome, bool is_last);
  // The caller of this call is told now: what is kept about it is not raised again.
  void drop(uint64_t sequence);
  // Nothing is raised any more about calls up to this one. Returns what was to be raised of asynchronous calls.
  std::deque<Status> settle(uint64_t sequence);
  // Takes out what no call will raise. `all`: no call follows. `unobserved`: of asynchronous calls too.
  // `awaits`: more may still come about a call that is not known. In words, one paragraph; empty: nothing.
  std::string take_unraised(bool all, bool unobserved, bool awaits);
  void forget_unobserved() { unobserved_.clear(); }

 private:
  struct Late {
    Status what;
    bool is_known = false;
  };
  Status extract(std::map<uint64_t, Late>::iterator late);
  void update();

  const Rank rank_;
  std::atomic<uint32_t> any_{0};
  std::map<uint64_t, Late> late_;      // by number of the call
  std::deque<Status> unobserved_;      // of asynchronous calls
  std::size_t unobserved_at_end_ = 0;  // since no call follows
  uint64_t settled_ = 0;               // nothing is raised about calls up to this one
  std::set<uint64_t> reported_;        // calls that something was raised, or logged, about
  uint64_t reported_until_ = 0;        // and nothing is told about these any more
};

}  // namespace pc
