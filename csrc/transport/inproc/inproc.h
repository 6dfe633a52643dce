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
  virtual std::unique_ptr<Transport> make_transport(Rank rank) = 0;
};

}  // namespace pc
