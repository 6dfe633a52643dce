// Work that threads without the GIL leave for a thread that has it: calls that have ended, and
// unused references.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

namespace pc {

class Ended {
 public:
  virtual void settle() = 0;  // Called with the GIL. Leaves Python errors unchanged.

 protected:
  ~Ended() = default;
};

// The main thread settles the objects between two steps of Python, unless a pycollective call
// settles them earlier. Lives as long as the process: Python keeps a pointer to it.
class EndedCalls {
 public:
  void add(std::shared_ptr<Ended> ended);  // without the GIL
  void settle();                           // with the GIL

 private:
  std::atomic<bool> asked_{false};  // settle() is scheduled in the main thread
  std::atomic<bool> any_{false};    // ended_ is not empty
  std::mutex mutex_;                // guards ended_
  std::vector<std::shared_ptr<Ended>> ended_;
};

}  // namespace pc
