// The clock of a communicator's waits. A test can replace it to control when a deadline passes.
#pragma once

#include <chrono>
#include <thread>

#include "base/deadline.h"

namespace pc::nccl {

// Thread-safety: all methods.
class Clock {
 public:
  virtual TimePoint now() = 0;
  virtual void sleep(std::chrono::nanoseconds time) = 0;  // 0: yields the CPU

 protected:
  ~Clock() = default;
};

class SteadyClock final : public Clock {
 public:
  TimePoint now() override { return std::chrono::steady_clock::now(); }
  void sleep(std::chrono::nanoseconds time) override {
    if (time.count() == 0) return std::this_thread::yield();
    std::this_thread::sleep_for(time);
  }
};

}  // namespace pc::nccl
