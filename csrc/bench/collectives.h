// What can be measured: five small functions per operation.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "comm/communicator.h"

namespace pc::bench {

// What a call is asked for besides its data.
struct Asked {
  ReduceOp op = ReduceOp::kSum;
  Rank root = 0;
};

struct Operation {
  std::string_view name;
  // Element i before and after the call, which is in place.
  double (*input)(const Asked& asked, Rank rank, Rank size, uint64_t i);
  double (*expected)(const Asked& asked, Rank rank, Rank size, uint64_t i);
  Status (*run)(Communicator& world, const Asked& asked, Buffer data);
  double (*bus_factor)(Rank size);  // busbw = factor * bytes / time
  std::string_view formula;         // the same, for people
  std::string_view note = {};       // what else must be known to read its numbers
  bool reduces = false, rooted = false, moves_data = true;
  int trips = 1;  // of the data in one run; its time is divided by them
};

std::span<const Operation> operations();
const Operation* find_operation(std::string_view name);  // nullptr if there is none

}  // namespace pc::bench
