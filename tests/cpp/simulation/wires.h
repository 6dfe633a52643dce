// The control connections of a simulated world: bytes in order per direction, in random pieces
// after random delays. A connection that ends loses the data in flight from a random point on.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/types.h"
#include "simulation/events.h"

namespace pc::simulation {

class Wires {
 public:
  using Deliver = std::function<void(Rank from, Rank to, std::span<const std::byte>)>;
  using End = std::function<void(Rank from, Rank to, const std::string& cause)>;
  Wires(Rank ranks, Time slowest, Events& events, Dice& dice, Deliver deliver, End end);

  void send(Rank from, Rank to, const std::vector<std::byte>& message);
  // Nothing more is sent by `from`, and the data in flight may be lost. `to` notices after `delay`,
  // if at all.
  void cut(Rank from, Rank to, std::optional<Time> delay, const std::string& cause);
  void finish(Rank from, Rank to);  // orderly: the data in flight arrives, then the end

 private:
  struct Wire {
    TimePoint last_arrival;
    uint64_t sent = 0, arrived = 0;  // in pieces
    uint64_t lost_from = ~uint64_t{0};
  };
  Wire& at(Rank from, Rank to) { return wires_[static_cast<std::size_t>(from * ranks_ + to)]; }
  Time until_arrival(Wire& wire, Time wish);

  const Rank ranks_;
  const Time slowest_;
  Events& events_;
  Dice& dice_;
  const Deliver deliver_;
  const End end_;
  std::vector<Wire> wires_;
};

}  // namespace pc::simulation
