// Finds the line that the program's main thread executes, for threads that must not wait for the
// GIL.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "bindings/tracing/call_site.h"

namespace pc {

// Two short-lived threads wait in place of the caller. The seeker waits for the GIL and finds the
// line. The answerer reports the line, or what is known without it if the search takes too long. A
// thread that requests the GIL while the interpreter ends is unwound or hangs for ever, so atexit
// calls close() before that.
class ProgramPosition {
 public:
  using Found = std::function<void(std::string)>;

  explicit ProgramPosition(const CallSites& sites) : sites_(sites) {}
  ~ProgramPosition() { close(); }

  // Calls `found` once, from another thread, within about kWaitLimit, with a text such as
  // "load.py:7 in read". One search serves all requests made meanwhile. `found` is not called after
  // close(), nor if the system has no more threads. Callable from any thread; does not wait.
  void find(Found found);
  // Ends all searches; `found` is not called any more. Callable with the GIL, which it releases
  // while it waits, or without.
  void close();

 private:
  static constexpr std::chrono::milliseconds kWaitLimit{200};
  void seek();
  void answer();
  std::string look() const;
  std::string excuse() const;

  const CallSites& sites_;
  std::mutex mutex_;  // guards the members below; never held while requesting the GIL
  std::condition_variable changed_;
  std::vector<Found> waiting_;
  bool wanted_ = false;   // a request was made after the last search
  std::string position_;  // result of the last search
  bool seeking_ = false, answering_ = false, closed_ = false;
  std::jthread seeker_, answerer_;  // replaced only when the previous thread has nothing left to do but end
};

}  // namespace pc
