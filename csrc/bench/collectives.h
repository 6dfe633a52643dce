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

// How many equal parts the input and the output have: one, or one for each rank.
struct Parts {
  Rank in = 1, out = 1;
  Rank most() const { return in > out ? in : out; }
};

// The arrays of one rank. In place, they are one array if they have the same size; otherwise the
// smaller array is this rank's part of the larger one.
struct Arrays {
  Buffer in, out;
};

// Element i of one part of one rank's array.
struct Element {
  Rank rank = 0, size = 1, part = 0;
  uint64_t i = 0;
};

// Returns the request for one call of a collective.
Request request_of(Collective collective, const Asked& asked, const Arrays& arrays);

// busbw = factor * bytes / time.
struct BusBandwidth {
  double (*factor)(Rank size);
  std::string_view formula;  // text for --explain
};

struct Operation {
  std::string_view name;
  // one run is one call of this collective; nullopt if a run sends messages
  std::optional<Collective> collective;
  Parts (*parts)(Rank size);  // the size of a row is that of the larger array
  BusBandwidth bus;
  Status (*run)(Communicator& group, const Asked& asked, const Arrays& arrays);
  double (*expected)(const Asked& asked, const Element& element);
  // Returns true if the call leaves a result in the rank's output. If not, nothing may be written
  // there.
  bool (*has_result)(const Asked& asked, Rank rank, Rank size);
  std::string_view note = {};  // an additional fact for readers of the numbers
  int trips = 1;               // how often the data travels in one run; the run's time is divided by this

  bool reduces() const { return collective && pc::reduces(*collective); }
  bool rooted() const { return collective && is_rooted(*collective); }
  bool moves_data() const { return !collective || pc::moves_data(*collective); }
  // returns true if it can run in place
  bool in_place() const { return !collective || pc::in_place(*collective); }
  bool averages() const { return !collective || !is_scan(*collective); }
  double input(const Asked& asked, const Element& element) const;
};

// Returns the peer of `rank` in the ping-pong of sendrecv (0 and 1, 2 and 3, ...), or `rank` itself
// if it has no peer. The lower rank of a pair sends first.
Rank mate_of(Rank rank, Rank size);

std::span<const Operation> operations();
const Operation* find_operation(std::string_view name);  // nullptr if there is none

}  // namespace pc::bench
