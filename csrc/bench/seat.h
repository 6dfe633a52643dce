// With whom a rank measures, and how groups that measure at the same time keep in step.
#pragma once

#include <optional>
#include <string>

#include "bench/measure.h"
#include "comm/runtime.h"

namespace pc::bench {

struct Seat {
  Communicator* group = nullptr;  // null: the rank stands by
  bool prints = false;
};

// `words` as groups() reads them. Collective among the ranks of a group.
Result<Seat> take_seat(Runtime& runtime, const std::string& words);

// After each row, of all ranks of the world: so who stands by never waits for longer than one. `wrong`, if the row says it,
// becomes the sum over all groups. No row: the rank stands by.
Status meet(Communicator& world, const Seat& seat, std::optional<Row>& row);

}  // namespace pc::bench
