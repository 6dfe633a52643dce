// Where the program's main thread stands, for threads that must not wait for the GIL.
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

// Two short-lived threads do the waiting: one takes the GIL and looks, the other answers, with less if that takes too long.
// A thread that still asks for the GIL when the interpreter ends is unwound or hangs for ever. Hence close(), from atexit.
class ProgramPosition {
 public:
  using Found = std::function<void(std::string)>;

  explicit ProgramPosition(const CallSites& sites) : sites_(sites) {}
  ~ProgramPosition() { close(); }

  // Calls `found` once, from another thread, within kWaitLimit or little more: "load.py:7 in read". One
  // search serves all who ask meanwhile. Never after close(), nor if the system has no more threads. Any
  // thread; does not wait.
  void find(Found found);
  // Ends all searches, and `found` will not be called any more. With the GIL, which it gives away meanwhile, or without.
  void close();

 private:
  static constexpr std::chrono::milliseconds kWaitLimit{200};
  void seek();
  void answer();
  std::string look() const;
  std::string excuse() const;

  const CallSites& sites_;
  std::mutex mutex_;  // guards what follows; nobody who holds it asks for the GIL
  std::condition_variable changed_;
  std::vector<Found> waiting_;
  bool wanted_ = false;   // position_ is older than a question
  std::string position_;  // what was found last
  bool seeking_ = false, answering_ = false, closed_ = false;
  std::jthread seeker_, answerer_;  // replaced when the one before has nothing left to do but end
};

}  // namespace pc
