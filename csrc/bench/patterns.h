// The inputs of the ranks and the one correct result. The numbers are so small or so round that
// every order of reduction gives the same bits in every type. They repeat with a prime period, so
// that data at a wrong offset is detected.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/types.h"

namespace pc::bench {

// Return true if the inputs have a result that is exact in every order of reduction. This holds for
// sum, prod, min, max and avg, and for all types except bool and the 8-bit floats.
bool has_pattern(ReduceOp op);
bool has_pattern(DType dtype);

// Returns element i of the data of `rank` in a collective that only moves data. Each rank has
// different data.
double mark(Rank rank, uint64_t i);
// Return element i of the contribution of `rank` to a reduction, and element i of the result.
double contribution(ReduceOp op, Rank rank, Rank size, uint64_t i);
double reduced(ReduceOp op, Rank size, uint64_t i);
// Returns element i of the result over the ranks below `end`, which is at least 1. Not for avg.
double reduced_until(ReduceOp op, Rank end, Rank size, uint64_t i);

// One period of elements in their memory representation.
class Pattern {
 public:
  Pattern(DType dtype, const std::function<double(uint64_t)>& element);
  void fill(Buffer data) const;
  uint64_t count_wrong(ConstBuffer data) const;  // number of elements that differ from the pattern

 private:
  std::size_t width_;
  std::vector<std::byte> period_;
};

}  // namespace pc::bench
