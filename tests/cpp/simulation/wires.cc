#include "simulation/wires.h"

#include <utility>

namespace pc::simulation {

Wires::Wires(Rank ranks, Time slowest, Events& events, Dice& dice, Deliver deliver, End end)
    : ranks_(ranks),
      slowest_(slowest),
      events_(events),
      dice_(dice),
      deliver_(std::move(deliver)),
      end_(std::move(end)),
      wires_(static_cast<std::size_t>(ranks * ranks)) {}

Time Wires::until_arrival(Wire& wire, Time wish) {
  wire.last_arrival = std::max(wire.last_arrival, events_.now() + wish);
  return std::chrono::duration_cast<Time>(wire.last_arrival - events_.now());
}

void Wires::send(Rank from, Rank to, const std::vector<std::byte>& message) {
  Wire& wire = at(from, to);
  for (std::size_t begin = 0; begin < message.size();) {
    const std::size_t left = message.size() - begin;
    const std::size_t nbytes = dice_.chance(70) ? left : 1 + dice_.below(left);
    std::vector<std::byte> piece(message.begin() + static_cast<std::ptrdiff_t>(begin),
                                 message.begin() + static_cast<std::ptrdiff_t>(begin + nbytes));
    begin += nbytes;
    const uint64_t number = wire.sent++;
    if (number >= wire.lost_from) continue;
    events_.after(until_arrival(wire, dice_.within(slowest_)),
                  [this, &wire, from, to, number, bytes = std::move(piece)] {
                    if (number >= wire.lost_from) return;
                    wire.arrived = number + 1;
                    deliver_(from, to, bytes);
                  });
  }
}

void Wires::cut(Rank from, Rank to, std::optional<Time> delay, const std::string& cause) {
  Wire& wire = at(from, to);
  wire.lost_from = std::min(wire.lost_from, wire.arrived + dice_.below(wire.sent - wire.arrived + 1));
  if (!delay.has_value()) return;
  events_.after(until_arrival(wire, *delay), [this, from, to, cause] { end_(from, to, cause); });
}

void Wires::finish(Rank from, Rank to) {
  Wire& wire = at(from, to);
  wire.lost_from = std::min(wire.lost_from, wire.sent);
  events_.after(until_arrival(wire, dice_.within(slowest_)),
                [this, from, to] { end_(from, to, "end of stream"); });
}

}  // namespace pc::simulation
