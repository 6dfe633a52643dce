// Times one operation at one size and verifies its result.
#pragma once

#include <optional>
#include <set>

#include "bench/collectives.h"
#include "bench/latencies.h"

namespace pc::bench {

// What is measured, but for the size.
struct Case {
  const Operation* operation = nullptr;
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;  // if the operation reduces
  std::optional<Rank> root;      // if it has one; nothing: another one in each iteration
  bool in_place = true;          // if it can be
};

struct Effort {
  uint64_t warm_up = 0, iterations = 1;
  bool checks = true;
};

struct World {
  Communicator& group;
  bool one_clock = false;  // all ranks read the same one
};

struct Row {
  Case what;
  uint64_t nbytes = 0;  // of the larger array
  uint64_t count = 0;   // elements, of one part if an array has parts
  uint64_t iterations = 0;
  Latencies time;
  double algbw = 0, busbw = 0;    // GB/s
  std::optional<uint64_t> wrong;  // elements, over all ranks; nothing: not checked
};

// Of those that the timed calls have.
std::set<Rank> roots_to_verify(const Case& what, Rank size);

// Collective.
Result<Row> measure(const World& world, const Case& what, uint64_t nbytes, const Effort& effort);

}  // namespace pc::bench
