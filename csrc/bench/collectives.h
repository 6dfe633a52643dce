// The operations that can be measured. Each is described by a few small functions, in the order of
// nccl-tests: the size of its arrays, the bandwidth that follows from its time, the call, and the
// expected result.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "comm/communicator.h"
#include "plan/contracts.h"

namespace pc::bench {

// The parameters of a call besides its data.
struct Asked {
  ReduceOp op = ReduceOp::kSum;
  Rank root = 0;
};

// The number of equally long parts in the arrays: one, or one for each rank.
struct Parts {
  Rank in = 1, out = 1;
  Rank most() const { return in > out ? in : out; }
};

// One rank's arrays. In place, one array is the other, or is this rank's part of the other.
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
  std::string_view formula;  // text for --explain
};

struct Operation {
  std::string_view name;
  std::optional<Collective> collective;  // the collective of which one run is one call; nothing: messages
  Parts (*parts)(Rank size);             // the size of a row is that of the larger array
  BusBandwidth bus;
  Status (*run)(Communicator& group, const Asked& asked, const Arrays& arrays);
  double (*expected)(const Asked& asked, const Element& element);
  // Nothing may be written to the output of a rank without a result.
  bool (*has_result)(const Asked& asked, Rank rank, Rank size);
  std::string_view note = {};  // what else a reader of its numbers must know
  int trips = 1;               // trips of the data in one run; the run's time is divided by them

  bool reduces() const { return collective && pc::reduces(*collective); }
  bool rooted() const { return collective && is_rooted(*collective); }
  bool moves_data() const { return !collective || pc::moves_data(*collective); }
  bool in_place() const { return !collective || pc::in_place(*collective); }  // whether it can run in place
  bool averages() const { return !collective || !is_scan(*collective); }
  double input(const Asked& asked, const Element& element) const;
};

// sendrecv: the peer in a rank's ping-pong (0 and 1, 2 and 3, ...), or the rank itself if it has no
// peer. The lower rank sends first.
Rank mate_of(Rank rank, Rank size);

std::span<const Operation> operations();
const Operation* find_operation(std::string_view name);  // nullptr if there is none

}  // namespace pc::bench
