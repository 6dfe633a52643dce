// What threads without the GIL leave for one that has it: calls that ended there, and references that nobody needs any more.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

namespace pc {

class Ended {
 public:
  virtual void settle() = 0;  // with the GIL. Leaves Python errors as they are

 protected:
  ~Ended() = default;
};

// The main thread settles them between two steps of Python, or whoever comes first.
// Lives as long as the process: Python keeps a pointer to it.
class EndedCalls {
 public:
  void add(std::shared_ptr<Ended> ended);  // without the GIL
  void settle();                           // with it

 private:
  std::atomic<bool> asked_{false};  // the main thread will come
  std::atomic<bool> any_{false};    // ended_ has some
  std::mutex mutex_;                // guards ended_
  std::vector<std::shared_ptr<Ended>> ended_;
};

}  // namespace pc
