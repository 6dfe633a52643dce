// What can be measured: five small functions per operation.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "comm/communicator.h"

namespace pc::bench {

struct Operation {
  std::string_view name;
  // Element i before and after the call, as whole numbers small enough to be exact in every type.
  int64_t (*input)(Rank rank, uint64_t i);
  int64_t (*expected)(Rank rank, Rank size, uint64_t i);
  Status (*run)(Communicator& world, Buffer data);
  double (*bus_factor)(Rank size);  // busbw = factor * bytes / time
  std::string_view (*formula)();    // the same, for people
  bool moves_data = true;
};

std::span<const Operation> operations();
const Operation* find_operation(std::string_view name);  // nullptr if there is none

// Writes each rank's input; counts the elements that are not as expected.
void fill(const Operation& operation, Rank rank, Buffer data);
uint64_t count_wrong(const Operation& operation, Rank rank, Rank size, ConstBuffer data);
bool can_fill(DType dtype);

}  // namespace pc::bench
