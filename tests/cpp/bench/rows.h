// Rows for tests of how they are printed.
#pragma once

#include "bench/table.h"

namespace pc::bench {

inline Row host_row(const char* operation, std::optional<Rank> root) {
  Row row;
  row.what = {find_operation(operation), DType::kBF16, ReduceOp::kMax, root};
  row.nbytes = 1024;
  row.count = 512;
  row.iterations = 20;
  row.in_place = Half{.time = {{12.5e-6, 12e-6, 40e-6}}, .algbw = 0.08192, .busbw = 0.12288, .wrong = 3};
  return row;
}

inline Row gpu_row() {
  Row row;
  row.what = {find_operation("allreduce"), DType::kF32, ReduceOp::kSum, {}};
  row.nbytes = 33554432;
  row.count = 8388608;
  row.iterations = 20;
  row.out_of_place = Half{.time = {{123.456e-6}, {3.5e-6}}, .algbw = 271.793, .busbw = 271.793, .wrong = 0};
  row.in_place = Half{.time = {{98.7654e-6}, {3.5e-6}}, .algbw = 271.793, .busbw = 271.793};
  return row;
}

// Returns a row measured out of place only, with NCCL's own call beside it.
inline Row compared_row() {
  Row row = gpu_row();
  row.in_place.reset();
  Half& half = *row.out_of_place;
  half.time = {{123.456e-6, 123e-6, 900e-6}, {3.5e-6, 2.5e-6, 4e-6}};
  half.raw = Times{{122.206e-6, 120e-6, 122e-6}, {2.25e-6, 2e-6, 4e-6}};
  half.raw_wrong = 0;
  return row;
}

inline Options on_gpus() {
  Options options;
  options.device = DeviceType::kCuda;
  return options;
}

}  // namespace pc::bench
