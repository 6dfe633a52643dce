// Ranks inside one process: tests, simulators, worlds of threads. Frames go from one Link to the other by one copy.
#pragma once

#include <memory>

#include "transport/transport.h"
#include "wire/link.h"

namespace pc {

// Where the ranks of one world meet. Thread-safety: all methods.
class InprocHub {
 public:
  static std::shared_ptr<InprocHub> create(Rank size, const LinkLimits& limits = {});
  virtual ~InprocHub() = default;
  // Once per rank; null if it is taken or outside the world.
  virtual std::unique_ptr<Transport> make_transport(Rank rank) = 0;
};

}  // namespace pc
