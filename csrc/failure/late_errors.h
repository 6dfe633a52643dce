// Errors about earlier calls of a group: calls that completed here and turn out to have been wrong,
// and asynchronous calls that failed while no caller requested the outcome. The next call raises
// such an error once; errors that no call raises become warnings.
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

// Thread-safety: any() may be called by any thread; the lock of the group's calls guards the rest.
class LateErrors {
 public:
  explicit LateErrors(Rank rank) : rank_(rank) {}

  bool any() const { return any_.load(std::memory_order_acquire) != 0; }  // take() has an error to return
  Status take();  // returns the error that the next call raises; OK if there is none
  // A call that this rank had completed was wrong. `is_known`: the other ranks have reported, and
  // no more follows.
  void add(uint64_t sequence, const Status& why, bool is_known);
  // Takes the failure of an asynchronous call if no caller requests its outcome. `is_last`: no call
  // follows, so only few are kept. Returns false if there are too many.
  bool add_unobserved(const Status& outcome, bool is_last);
  // The caller of this call is informed now: what is kept about it is not raised again.
  void drop(uint64_t sequence);
  // From now on no error about calls up to this one is raised. Returns the pending errors of
  // asynchronous calls.
  std::deque<Status> settle(uint64_t sequence);
  // Removes and describes the errors that no call will raise, one paragraph each; returns an empty
  // text if there are none. `all`: no call follows. `unobserved`: include asynchronous calls.
  // `awaits`: more may still be reported about a call that is not known.
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
  std::map<uint64_t, Late> late_;      // by call number
  std::deque<Status> unobserved_;      // of asynchronous calls
  std::size_t unobserved_at_end_ = 0;  // number taken since no call follows
  uint64_t settled_ = 0;               // no error is raised about calls up to this one
  std::set<uint64_t> reported_;        // calls about which an error was raised or logged
  uint64_t reported_until_ = 0;        // no error is reported about calls up to this one either
};

}  // namespace pc
