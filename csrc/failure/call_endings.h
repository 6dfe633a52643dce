// Calls of a group that ended for all of its ranks, kept until their callers here have been
// informed; and questions about calls, kept until they are answered.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "wire/control_plane.h"

namespace pc {

// Limit for waiting for other ranks' reports. It exceeds ControlPlane::kWaitLimit because the
// thread that collects may itself be late.
inline constexpr std::chrono::milliseconds kWaitLimitForAnswers{1000};

// The answers of the ranks, and the time of the request.
struct Answers {
  std::optional<std::vector<RankStatus>> statuses = {};  // null: they have not arrived
  TimePoint began = now();

  void come(std::span<const RankStatus> all) { statuses.emplace(all.begin(), all.end()); }
  // it is still worth waiting for them
  bool are_open() const { return !statuses && now() < began + kWaitLimitForAnswers; }
};

struct CallEnding {
  CallEnd why;
  Answers answers = {};
};

// Thread-safety: any() may be called by any thread; the lock of the group's calls guards the rest.
class CallEndings {
 public:
  bool any() const { return count_.load(std::memory_order_acquire) != 0; }
  CallEnding* find(uint64_t sequence);  // returns null if it has not ended
  // Returns false if the call has ended before; then the first reason stays.
  bool add(uint64_t sequence, const CallEnd& why);
  void forget(uint64_t sequence);
  // returns true if no further ending may be kept for a call that this rank has not made
  bool is_full() const;
  // Returns the ending of a call after `sequence` that ended because its rank left, or null if
  // there is none.
  const CallEnd* left_behind(uint64_t sequence) const;

 private:
  std::map<uint64_t, CallEnding> all_;
  std::atomic<uint32_t> count_{0};
};

// Thread-safety: the lock of the group's calls guards it.
class Surveys {
 public:
  // Returns the answers, which stay valid until every thread that has joined has left, and true if
  // the caller must send the question to the ranks.
  std::pair<const Answers*, bool> join(uint64_t question);
  void leave(uint64_t question);
  const Answers* find(uint64_t question) const;
  // returns false if no thread has asked
  bool answer(uint64_t question, std::span<const RankStatus> statuses);

 private:
  struct Survey {
    int waiters = 0;
    Answers answers = {};
  };
  std::map<uint64_t, Survey> all_;
};

}  // namespace pc
