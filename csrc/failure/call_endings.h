// Stores the end of each call that ended on all ranks of a group, until the caller on this rank has
// been informed. Also stores inquiries about calls, until they are answered.
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
// control thread, which collects the reports, may itself be late.
inline constexpr std::chrono::milliseconds kWaitLimitForAnswers{1000};

// The answers of the ranks to an inquiry, and the time at which it was sent.
struct Answers {
  std::optional<std::vector<RankStatus>> statuses = {};  // null: they have not arrived
  TimePoint began = now();

  void come(std::span<const RankStatus> all) { statuses.emplace(all.begin(), all.end()); }
  // returns true if answers are outstanding and the limit has not passed
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
  CallEnding* find(uint64_t sequence);  // returns null if the call has not ended on all ranks
  // Returns false if the end of the call is already stored. The first reason is then kept.
  bool add(uint64_t sequence, const CallEnd& why);
  void forget(uint64_t sequence);
  // returns true if further ends that other ranks report must be discarded
  bool is_full() const;
  // Returns the end of the first call after `sequence` that ended because a rank left, or null if
  // there is none.
  const CallEnd* left_behind(uint64_t sequence) const;

 private:
  std::map<uint64_t, CallEnding> all_;
  std::atomic<uint32_t> count_{0};
};

// The inquiries for which threads of this rank wait. Thread-safety: the lock of the group's calls
// guards it.
class Surveys {
 public:
  // Adds the calling thread to the threads that wait for an inquiry. Returns the inquiry's answers,
  // which stay valid until the last of these threads has left, and true if the caller must send the
  // inquiry to the ranks.
  std::pair<const Answers*, bool> join(uint64_t question);
  void leave(uint64_t question);
  const Answers* find(uint64_t question) const;
  // returns false if no thread waits for the answer
  bool answer(uint64_t question, std::span<const RankStatus> statuses);

 private:
  struct Survey {
    int waiters = 0;
    Answers answers = {};
  };
  std::map<uint64_t, Survey> all_;
};

}  // namespace pc
