// Times one operation at one size and verifies its result.
#pragma once

#include "bench/collectives.h"

namespace pc::bench {

struct Row {
  uint64_t nbytes = 0, count = 0;
  double median_s = 0, p99_s = 0;  // of the slowest rank: a broadcast's root is done long before its leaves
  double algbw = 0, busbw = 0;     // GB/s
  uint64_t wrong = 0;              // elements, over all ranks
};

// Collective. iterations 0: as many as fit the size, the same on every rank.
Result<Row> measure(Communicator& world, const Operation& operation, uint64_t nbytes, DType dtype,
                    uint64_t iterations);

}  // namespace pc::bench
