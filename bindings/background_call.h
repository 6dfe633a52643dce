// A call that goes on in the background, with the arrays that it holds. It lives until it has ended, whether anybody in
// Python still knows it or not.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "comm/async_call.h"
#include "prepared_call.h"

namespace pc {

class EndedCalls;

// Thread-safety: with the GIL, except where a method says otherwise.
class BackgroundCall : public std::enable_shared_from_this<BackgroundCall> {
 public:
  // Holds the arrays of `prepared`.
  BackgroundCall(const GroupObject& group, std::unique_ptr<PreparedCall> prepared);
  ~BackgroundCall();  // once settled, or never begun; in the first case without the GIL as well
  BackgroundCall(const BackgroundCall&) = delete;
  BackgroundCall& operator=(const BackgroundCall&) = delete;

  // From now on it keeps itself. False: a Python error is set, and it has not begun.
  static bool begin(const GroupObject& group, const std::shared_ptr<BackgroundCall>& call);
  AsyncCall& call() const { return *call_; }
  const char* function() const { return function_; }
  std::size_t nbytes() const { return nbytes_; }
  // It has ended: notes what it wrote, and lets its arrays go. Leaves Python errors as they are.
  void settle();

  // An eventfd that is written to when the call has ended. False: it has already, and nothing will be written. No
  // more is written once unwatch() has returned.
  bool watch(int fd);
  void unwatch(int fd);

 private:
  void ended();  // without the GIL: its on_end

  State* const state_;
  const char* const function_;
  const std::size_t nbytes_;
  std::unique_ptr<PreparedCall> prepared_;  // null once settled
  PyObject* held_[3] = {};
  std::shared_ptr<AsyncCall> call_;
  std::shared_ptr<BackgroundCall> self_;  // from begin() to settle()
  EndedCalls* const ended_calls_;

  std::mutex mutex_;  // guards what follows; without the GIL
  bool has_ended_ = false;
  std::vector<int> watching_;
};

// The calls that ended in other threads, until a thread with the GIL settles them: the main thread between two steps of
// Python, or whoever comes first.
// Lives as long as the process: Python keeps a pointer to it.
class EndedCalls {
 public:
  void add(std::shared_ptr<BackgroundCall> call);  // without the GIL
  void settle();                                   // with it

 private:
  std::atomic<bool> asked_{false};  // the main thread will come
  std::atomic<bool> any_{false};    // calls_ has some
  std::mutex mutex_;                // guards calls_
  std::vector<std::shared_ptr<BackgroundCall>> calls_;
};

}  // namespace pc
