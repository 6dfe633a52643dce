// What the ranks put in, and the one right result: numbers so small or so round that every order of reducing them gives the
// same bits in every type. They repeat with a prime period, so that data at the wrong place is wrong data.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/types.h"

namespace pc::bench {

// Whether the data are exact in every order of reducing: sum, prod, min, max and avg, but not where one byte must hold a
// truth value or a float.
bool has_pattern(ReduceOp op);
bool has_pattern(DType dtype);

// Element i of what `rank` moves, different from rank to rank.
double mark(Rank rank, uint64_t i);
// Element i of what `rank` puts into a reduction, and of what comes out.
double contribution(ReduceOp op, Rank rank, Rank size, uint64_t i);
double reduced(ReduceOp op, Rank size, uint64_t i);
// Of the ranks before `end` alone, at least one; not for avg.
double reduced_until(ReduceOp op, Rank end, Rank size, uint64_t i);

// One period of elements as they lie in memory.
class Pattern {
 public:
  Pattern(DType dtype, const std::function<double(uint64_t)>& element);
  void fill(Buffer data) const;
  uint64_t count_wrong(ConstBuffer data) const;  // elements whose bytes are not the pattern's

 private:
  std::size_t width_;
  std::vector<std::byte> period_;
};

}  // namespace pc::bench
