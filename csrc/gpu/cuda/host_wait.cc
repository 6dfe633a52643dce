#include "gpu/cuda/host_wait.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "gpu/cuda/event.h"

namespace pc::cuda {
namespace {

// The thread polls for kAwake before its first sleep. Each sleep lasts an eighth of the wait so
// far, at most 1 ms. So the wait ends late by at most an eighth of its length, and by at most 1 ms.
constexpr std::chrono::microseconds kAwake{200}, kLongestNap{1000};
constexpr int kPart = 8;

}  // namespace

Result<WaitEnd> wait_on_host(const std::function<Result<bool>()>& is_done, const HostWait& wait) {
  Status failure;
  const auto ready = [&] {
    if (!failure.is_ok()) return true;
    const Result<bool> done = is_done();
    failure = done.status();
    return !done.is_ok() || done.value();
  };
  std::chrono::microseconds waited = kAwake;
  const auto sleep = [&](int most_ms) {
    if (wait.trouble) failure = wait.trouble();
    if (!failure.is_ok()) return;
    const auto wanted = std::min(waited / kPart, kLongestNap);
    const auto nap = std::min(wanted, std::chrono::microseconds(most_ms * 1000));
    if (wait.nap) {
      wait.nap(nap);
    } else {
      std::this_thread::sleep_for(nap);
    }
    waited += nap;
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
