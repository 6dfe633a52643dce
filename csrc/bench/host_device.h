// Arrays in the host's memory. A call has ended when it returns, so that each has a time of its own.
#pragma once

#include <memory>

#include "bench/measure.h"

namespace pc::bench {

class HostDevice final : public MeasuredDevice {
 public:
  // `one_clock`: all ranks read the same one.
  HostDevice(Communicator& group, bool one_clock) : MeasuredDevice(group), one_clock_(one_clock) {}
  Result<std::unique_ptr<Calls>> prepare(const Case& what, bool in_place, uint64_t count) override;

 private:
  const bool one_clock_;
};

}  // namespace pc::bench
