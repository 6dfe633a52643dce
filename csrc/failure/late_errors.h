// Errors about earlier calls of a group: calls that this rank completed and that turn out to have
// been wrong, and asynchronous calls that failed while no caller waited for them. The next call
// raises such an error once. Errors that no call raises become warnings.
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

  // true: take() has an error to return
  bool any() const { return any_.load(std::memory_order_acquire) != 0; }
  Status take();  // returns the error that the next call raises; OK if there is none
  // Adds an error about a call that this rank had completed. `is_known` is true if the other ranks
  // have reported, so that no better error follows.
  void add(uint64_t sequence, const Status& why, bool is_known);
  // Adds the failure of an asynchronous call for which no caller waits. `is_last` means that no
  // call follows; then only the first few failures are kept. Returns false if the failure is not
  // kept.
  bool add_unobserved(const Status& outcome, bool is_last);
  // Drops the error about this call, because the call itself reports it to its caller.
  void drop(uint64_t sequence);
  // From now on no error about calls up to `sequence` is raised. Returns the pending failures of
  // asynchronous calls.
  std::deque<Status> settle(uint64_t sequence);
  // Removes and returns, as text, the errors that no call will raise. `all` means that no call
  // follows, so it removes every error about a completed call. `unobserved` adds the failures of
  // asynchronous calls. `awaits` leaves errors added without `is_known`, unless `all` is set,
  // because other ranks may report more about them.
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
  std::deque<Status> unobserved_;      // failures of asynchronous calls
  std::size_t unobserved_at_end_ = 0;  // number of failures added with `is_last`
  uint64_t settled_ = 0;               // errors about calls up to this one are not raised
  std::set<uint64_t> reported_;        // calls about which an error was raised or logged
  uint64_t reported_until_ = 0;        // calls up to this one count as reported, too
};

}  // namespace pc
