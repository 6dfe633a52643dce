// The table, in the columns of nccl-tests.
#pragma once

#include "bench/measure.h"

namespace pc::bench {

void print_header(const Operation& operation, Rank size, bool explain);
void print_row(const Row& row, DType dtype);

}  // namespace pc::bench
