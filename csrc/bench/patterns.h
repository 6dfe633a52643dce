// The inputs of the ranks and the one correct result. The numbers are so small or so round that
// every order of reduction gives the same bits in every type. They repeat with a prime period, so
// that data at a wrong offset is wrong data.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/types.h"

namespace pc::bench {

// Returns true if the data are exact in every order of reduction: sum, prod, min, max and avg, but
// not for types in which one byte holds a truth value or a float.
bool has_pattern(ReduceOp op);
bool has_pattern(DType dtype);

// Element i of the data that `rank` moves, different for each rank.
double mark(Rank rank, uint64_t i);
// Element i of the contribution of `rank` to a reduction, and element i of the result.
double contribution(ReduceOp op, Rank rank, Rank size, uint64_t i);
double reduced(ReduceOp op, Rank size, uint64_t i);
// The result over the ranks before `end` only, at least one rank; not for avg.
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
