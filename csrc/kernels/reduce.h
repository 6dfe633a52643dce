// Reductions of CPU memory, dispatched at run time to the best instruction set of this machine.
// Rules: float16 and bfloat16 are computed in float32 and rounded to nearest even. min and max propagate NaN and order
// -0 before +0 (IEEE 754-2019 minimum, maximum). Integers wrap. avg of float32 and float64 is the sum, divided once by the
// number of ranks when the last contribution is added; avg of the 16-bit types is a running weighted mean, which cannot
// overflow and does not lose small values. Every operation gives the same bits on every instruction set (NaN payloads aside).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/types.h"

namespace pc {

// How many ranks' contributions each operand holds, and how many there are in all. Looked at by kAvg only.
struct Weights {
  uint32_t a = 1, b = 1, total = 2;
};

bool can_reduce(DType dtype, ReduceOp op);

// out = a (op) b, `count` elements. out may be a or b, else must not overlap them. Any alignment.
// Precondition: can_reduce(dtype, op).
void reduce(std::byte* out, const std::byte* a, const std::byte* b, std::size_t count, DType dtype,
            ReduceOp op, Weights weights = {});

// For tests, benchmarks and `doctor`: the implementations of this build ("portable", "AVX2", "AVX3", ...), best last,
// and the one reduce() uses. `reduce_on` runs a named one.
std::span<const std::string_view> reduce_targets();
std::string_view reduce_target();
bool reduce_on(std::string_view target, std::byte* out, const std::byte* a, const std::byte* b,
               std::size_t count, DType dtype, ReduceOp op, Weights weights = {});

}  // namespace pc
