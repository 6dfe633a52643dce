#include "comm/started_device_call.h"

namespace pc {

using std::chrono::steady_clock;

void StartedDeviceCall::end(State how) {
  TimePoint::rep never = 0;
  ended_at_.compare_exchange_strong(never, steady_clock::now().time_since_epoch().count());
  State running = State::kRunning;
  state_.compare_exchange_strong(running, how);
}

TimePoint StartedDeviceCall::ended_at() const {
  return state_ == State::kRunning ? steady_clock::now() : TimePoint(TimePoint::duration(ended_at_));
}

}  // namespace pc
