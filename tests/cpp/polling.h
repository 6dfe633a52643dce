// A wait for a condition that has no event to wait on.
#pragma once

#include <chrono>
#include <thread>

namespace pc::testing {

// A thread that yields in a loop instead takes a whole core from the threads that it waits for.
template <typename Condition>
void poll_until(const Condition& condition) {
  while (!condition()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace pc::testing
