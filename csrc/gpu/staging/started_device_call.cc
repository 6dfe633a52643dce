#include "gpu/staging/started_device_call.h"

namespace pc {

Status StartedDeviceCall::why() const {
  const std::lock_guard lock(why_mutex_);
  return why_;
}

void StartedDeviceCall::end(State how, const Status& why) {
  {
    const std::lock_guard lock(why_mutex_);
    if (state_ == State::kRunning && why_.is_ok()) why_ = why;
  }
  TimePoint::rep never = 0;
  ended_at_.compare_exchange_strong(never, now().time_since_epoch().count());
  State running = State::kRunning;
  state_.compare_exchange_strong(running, how);
}

TimePoint StartedDeviceCall::ended_at() const {
  return state_ == State::kRunning ? now() : TimePoint(TimePoint::duration(ended_at_));
}

}  // namespace pc
