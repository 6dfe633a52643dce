// Calls of a group that ended for all of its ranks, until their callers here have been told; and questions about calls, until they
// are answered.
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

// For what other ranks know. More than ControlPlane::kWaitLimit: the thread that collects may itself be late.
inline constexpr std::chrono::milliseconds kWaitLimitForAnswers{1000};

// What the ranks have answered, and since when they are asked.
struct Answers {
  std::optional<std::vector<RankStatus>> statuses = {};  // null: they have not come
  TimePoint began = now();

  void come(std::span<const RankStatus> all) { statuses.emplace(all.begin(), all.end()); }
  bool are_open() const { return !statuses && now() < began + kWaitLimitForAnswers; }  // they are waited for
};

struct CallEnding {
  CallEnd why;
  Answers answers = {};
};

// Thread-safety: any() from anywhere; the lock of the group's calls guards the rest.
class CallEndings {
 public:
  bool any() const { return count_.load(std::memory_order_acquire) != 0; }
  CallEnding* find(uint64_t sequence);  // null: it has not ended
  // False: it has ended before, and the first reason stays.
  bool add(uint64_t sequence, const CallEnd& why);
  void forget(uint64_t sequence);
  bool is_full() const;  // of calls that were not made here yet
  // Of a call behind `sequence` that has ended because its rank left; null: there is none.
  const CallEnd* left_behind(uint64_t sequence) const;

 private:
  std::map<uint64_t, CallEnding> all_;
  std::atomic<uint32_t> count_{0};
};

// Thread-safety: the lock of the group's calls guards it.
class Surveys {
 public:
  // The answers stay where they are until each that has joined has left. Second: the ranks are to be asked.
  std::pair<const Answers*, bool> join(uint64_t question);
  void leave(uint64_t question);
  const Answers* find(uint64_t question) const;
  bool answer(uint64_t question, std::span<const RankStatus> statuses);  // false: no thread has asked

 private:
  struct Survey {
    int waiters = 0;
    Answers answers = {};
  };
  std::map<uint64_t, Survey> all_;
};

}  // namespace pc
