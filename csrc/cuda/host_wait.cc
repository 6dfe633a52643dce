#include "cuda/host_wait.h"

#include <algorithm>
#include <thread>

#include "cuda/event.h"

namespace pc::cuda {
namespace {

using std::chrono::microseconds;

// Naps double from the first to the longest: a wait ends late by a fraction of its own length, and by 1 ms at most.
constexpr microseconds kFirstNap{20}, kLongestNap{1000};

}  // namespace

Result<WaitEnd> wait_on_host(const std::function<Result<bool>()>& is_done, const HostWait& wait) {
  Status failure;
  const auto ready = [&] {
    if (!failure.is_ok()) return true;
    const Result<bool> done = is_done();
    failure = done.status();
    return !done.is_ok() || done.value();
  };
  microseconds next = kFirstNap;
  const auto sleep = [&](int most_ms) {
    if (wait.trouble) failure = wait.trouble();
    if (!failure.is_ok()) return;
    const microseconds nap = std::min(next, microseconds(most_ms * 1000));
    if (wait.nap) {
      wait.nap(nap);
    } else {
      std::this_thread::sleep_for(nap);
    }
    next = std::min(next * 2, kLongestNap);
  };
  Waiter waiter;
  const WaitEnd end = waiter.wait(wait.context, ready, sleep);
  if (!failure.is_ok()) return failure;
  return end;
}

Result<WaitEnd> wait_on_host(const Driver& driver, CUevent event, const HostWait& wait) {
  return wait_on_host([&] { return is_reached(driver, event); }, wait);
}

}  // namespace pc::cuda
