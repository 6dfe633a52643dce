// The parameters of a network in the model that cost.h explains, and the cost of plans on it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace pc {

struct LinkModel {
  std::string_view name;
  double latency_s = 0;                // alpha: from the sender to the receiver
  double overhead_s = 0;               // o: per message, once at its sender and once at its receiver
  double seconds_per_byte = 0;         // beta: links are full duplex, one port in and one out per rank
  double reduce_seconds_per_byte = 0;  // gamma
  std::string_view about;              // the source of the parameters
};
std::span<const LinkModel> link_models();
const LinkModel* find_link_model(std::string_view name);  // nullptr if there is none

struct Cost {
  uint64_t steps = 0, messages = 0;            // of all ranks
  uint64_t least_nbytes = 0, most_nbytes = 0;  // sent by the ranks that send the least and the most
  uint32_t rounds = 0;  // messages on the longest chain in which each message waits for the previous one
  double seconds = 0;   // until the last rank has ended
  bool exact = true;    // false: lanes may take a port in an order other than the model's (see walk.h)
};

}  // namespace pc
