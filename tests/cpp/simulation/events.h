// The virtual clock of a simulated world, and its randomness. Events run in order of time, and for
// equal times in the order in which they were planned. The same seed gives the same world on every
// machine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "base/deadline.h"

namespace pc::simulation {

using Time = std::chrono::microseconds;
using std::chrono::milliseconds;

class Dice {  // not the distributions of <random>: those differ between libraries
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  template <class T>
  T below(T n) {
    return static_cast<T>(random_() % static_cast<uint64_t>(n));
  }
  Time within(Time most) { return Time(below(most.count() + 1)); }
  bool chance(int percent) { return below(100) < percent; }

 private:
  std::mt19937_64 random_;
};

class Events {
 public:
  TimePoint now() const { return now_; }
  void after(Time delay, std::function<void()> what) {
    heap_.push_back({now_ + delay, planned_++, std::move(what)});
    std::push_heap(heap_.begin(), heap_.end(), later);
  }
  bool run_next() {
    if (heap_.empty()) return false;
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const Event event = std::move(heap_.back());
    heap_.pop_back();
    now_ = event.when;
    event.what();
    return true;
  }

 private:
  struct Event {
    TimePoint when;
    uint64_t number;
    std::function<void()> what;
  };
  static bool later(const Event& x, const Event& y) {
    return x.when != y.when ? x.when > y.when : x.number > y.number;
  }
  TimePoint now_ = TimePoint{} + std::chrono::hours(1);
  uint64_t planned_ = 0;
  std::vector<Event> heap_;
};

}  // namespace pc::simulation
