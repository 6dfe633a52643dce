// A call that goes on in the background, with the arrays that it holds. It lives until it has ended, whether anybody in
// Python still knows it or not.
#pragma once

#include <functional>
#include <memory>

#include "bindings/calls/prepared_call.h"
#include "bindings/python/end_bell.h"
#include "bindings/python/ended_calls.h"
#include "operation/async_work.h"

namespace pc {

// Thread-safety: with the GIL, except where a method says otherwise.
class BackgroundCall final : public Ended, public std::enable_shared_from_this<BackgroundCall> {
 public:
  // Holds the arrays of `prepared`.
  BackgroundCall(const GroupObject& group, std::unique_ptr<PreparedCall> prepared);
  ~BackgroundCall();  // once settled, or never begun; in the first case without the GIL as well
  BackgroundCall(const BackgroundCall&) = delete;
  BackgroundCall& operator=(const BackgroundCall&) = delete;

  // From now on it keeps itself. False: a Python error is set, and it has not begun.
  static bool begin(const GroupObject& group, const std::shared_ptr<BackgroundCall>& call);
  AsyncWork& call() const { return *call_; }
  const char* function() const { return function_; }
  std::size_t nbytes() const { return nbytes_; }
  // It has ended: notes what it wrote, and lets its arrays go. Leaves Python errors as they are.
  void settle() override;
  EndBell& bell() { return bell_; }

 private:
  void ended();  // without the GIL: its on_end

  State* const state_;
  const char* const function_;
  const std::size_t nbytes_;
  std::unique_ptr<PreparedCall> prepared_;  // null once settled
  std::shared_ptr<GroupHold> hold_;         // likewise
  PyObject* held_[3] = {};
  std::shared_ptr<AsyncWork> call_;
  std::shared_ptr<BackgroundCall> self_;  // from begin() to settle()
  EndedCalls* const ended_calls_;
  EndBell bell_;
};

}  // namespace pc
