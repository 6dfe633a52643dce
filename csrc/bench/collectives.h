// What can be measured: a few small functions per operation, in the order of nccl-tests: how large its arrays are, what
// bandwidth follows from its time, what goes in, the call, what must come out.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "comm/communicator.h"

namespace pc::bench {

// What a call is asked for besides its data.
struct Asked {
  ReduceOp op = ReduceOp::kSum;
  Rank root = 0;
};

// How many parts of one length the arrays have: one, or one for each rank.
struct Parts {
  Rank in = 1, out = 1;
  Rank most() const { return in > out ? in : out; }
};

// One rank's arrays. In place one is the other, or this rank's part of the other.
struct Arrays {
  Buffer in, out;
};

// Element i of one part of one rank's array.
struct Element {
  Rank rank = 0, size = 1, part = 0;
  uint64_t i = 0;
};

// One call of a collective.
Request request_of(Collective collective, const Asked& asked, const Arrays& arrays);

struct Operation {
  std::string_view name;
  std::optional<Collective> collective = {};  // which one call of is a run; nothing: run() alone knows
  Parts (*parts)(Rank size);                  // the size of a row is that of the larger array
  double (*bus_factor)(Rank size);            // busbw = factor * bytes / time
  double (*input)(const Asked& asked, const Element& element);
  Status (*run)(Communicator& group, const Asked& asked, const Arrays& arrays);
  double (*expected)(const Asked& asked, const Element& element);
  // To the output of a rank without a result nothing may be written.
  bool (*has_result)(const Asked& asked, Rank rank, Rank size);
  std::string_view formula;    // of busbw, for people
  std::string_view note = {};  // what else must be known to read its numbers
  bool reduces = false, rooted = false, moves_data = true;
  bool in_place = true;  // it may be
  bool averages = true;  // if it reduces
  int trips = 1;         // of the data in one run; its time is divided by them
};

// sendrecv: with whom a rank plays ping-pong, 0 and 1, 2 and 3, ...; itself: with nobody. The lower one serves.
Rank mate_of(Rank rank, Rank size);

std::span<const Operation> operations();
const Operation* find_operation(std::string_view name);  // nullptr if there is none

}  // namespace pc::bench
