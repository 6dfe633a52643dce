// What this rank knows of calls of a group that went wrong, and of the end of the group.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>

#include "base/clock.h"
#include "base/status.h"
#include "failure/call_endings.h"
#include "failure/late_errors.h"

namespace pc {

// GroupCalls, which hears of failures, and FailureReports, which tells callers of them, share it.
struct FailureState {
  explicit FailureState(Rank rank) : late_errors(rank) {}

  std::atomic<uint32_t> ended{0};  // not 0: `cause` is set for good
  mutable std::mutex mutex;        // guards what follows
  Status cause;
  bool closing = false;     // this rank goes
  bool cause_told = false;  // a call has raised it
  CallEndings endings;
  LateErrors late_errors;
  Surveys surveys;
  std::map<Rank, TimePoint> leaving;  // who is in shutdown(), and when that was first heard
  std::condition_variable changed;    // a verdict, a survey, or the end of the group
};

}  // namespace pc
