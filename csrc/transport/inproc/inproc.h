// The transport between ranks of one process, for tests, simulators and worlds of threads. It
// copies each frame once, from one Link to the other.
#pragma once

#include <memory>

#include "transport/transport.h"
#include "wire/link.h"

namespace pc {

// Connects the ranks of one world. Thread-safety: all methods.
class InprocHub {
 public:
  static std::shared_ptr<InprocHub> create(Rank size, const LinkLimits& limits = {});
  virtual ~InprocHub() = default;
  // Call it once per rank. Returns null if the rank is taken or outside the world.
  virtual std::unique_ptr<Transport> make_transport(Rank rank) = 0;
};

}  // namespace pc
