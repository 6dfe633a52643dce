// What can be measured: a few small functions per operation, in the order of nccl-tests: how large its arrays are, what
// bandwidth follows from its time, the call, what must come out.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "comm/communicator.h"
#include "plan/contracts.h"

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

// busbw = factor * bytes / time.
struct BusBandwidth {
  double (*factor)(Rank size);
  std::string_view formula;  // for people
};

struct Operation {
  std::string_view name;
  std::optional<Collective> collective;  // which one call of is a run; nothing: messages
  Parts (*parts)(Rank size);             // the size of a row is that of the larger array
  BusBandwidth bus;
  Status (*run)(Communicator& group, const Asked& asked, const Arrays& arrays);
  double (*expected)(const Asked& asked, const Element& element);
  // To the output of a rank without a result nothing may be written.
  bool (*has_result)(const Asked& asked, Rank rank, Rank size);
  std::string_view note = {};  // what else must be known to read its numbers
  int trips = 1;               // of the data in one run; its time is divided by them

  bool reduces() const { return collective && pc::reduces(*collective); }
  bool rooted() const { return collective && is_rooted(*collective); }
  bool moves_data() const { return !collective || pc::moves_data(*collective); }
  bool in_place() const { return !collective || pc::in_place(*collective); }  // it may be
  bool averages() const { return !collective || !is_scan(*collective); }
  double input(const Asked& asked, const Element& element) const;
};

// sendrecv: with whom a rank plays ping-pong, 0 and 1, 2 and 3, ...; itself: with nobody. The lower one serves.
Rank mate_of(Rank rank, Rank size);

std::span<const Operation> operations();
const Operation* find_operation(std::string_view name);  // nullptr if there is none

}  // namespace pc::bench
