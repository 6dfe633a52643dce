// Reductions of CPU memory, dispatched at run time to the best instruction set of this machine.
// These rules hold for every dtype and op that can_reduce() (docs/dtypes.md has them for users):
// - Integers wrap.
// - float16, bfloat16 and both float8 are computed in float32 and rounded to nearest even, at every
//   step. A value that is too large becomes infinity or, in float8_e4m3fn, NaN.
// - min and max propagate NaN and order -0 before +0 (IEEE 754-2019 minimum, maximum). minloc and
//   maxloc compare pairs (value, location) by the same order, so NaN wins; of equal values the
//   smaller location is taken (MPI 4.1, 6.9.4).
// - bool: any byte but 0 is true, and the result is 0 or 1; sum and max are "or", prod and min are
//   "and".
// - land, lor, lxor: everything but 0 is true, also NaN; the result is 1 or 0 of the same dtype.
// - A complex product is (ac - bd) + (ad + bc)i, rounded at each operation, without the recovery of
//   infinities of C's Annex G.
// - avg of float32, float64 and complex numbers is the sum, divided once by the number of ranks
//   when the last contribution is added. avg of shorter floats is a running weighted mean, which
//   cannot overflow and does not lose small values. Integers have no avg, because it would have to
//   round.
// - A scaled sum multiplies each contribution once by the factor, rounded to the type that the sum
//   is computed in.
// Every operation gives the same bits on every instruction set (except for NaN payloads).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/types.h"
#include "kernels/weights.h"

namespace pc {

bool can_reduce(DType dtype, ReduceOp op);

// out = a (op) b, for `count` elements (a pair is two of them). out may be a or b; otherwise it
// must not overlap them. Any alignment is allowed. Requires can_reduce(dtype, how).
void reduce(std::byte* out, const std::byte* a, const std::byte* b, std::size_t count, DType dtype,
            const Reduction& how, Weights weights = {});

// Reduces a single contribution: scales it, makes it 0 or 1 for the logical operations, or copies
// it for the other operations. out may be in; otherwise it must not overlap in.
void reduce_alone(std::byte* out, const std::byte* in, std::size_t count, DType dtype, const Reduction& how);

// out = from[0] (op) from[1] (op) ..., combined in this order, in one pass over memory. The result
// has the bits of a chain of reduce() with the weights {k, 1, from.size()} at step k, or of
// reduce_alone() for a single source. `also` gets the same bytes with ordinary stores, for other
// cores to read. There must be at least one source. out may be any source; otherwise it must not
// overlap them. `also` must not overlap anything. Either output may be null.
void reduce_all(std::byte* out, std::byte* also, std::span<const std::byte* const> from, std::size_t count,
                DType dtype, const Reduction& how);

// For tests, benchmarks and `doctor`: the implementations of this build ("portable", "AVX2",
// "AVX3", ...), best last, and the implementation that reduce() uses. `reduce_on` and
// `reduce_all_on` run the given implementation, and return false if it is not available.
std::span<const std::string_view> reduce_targets();
std::string_view reduce_target();
bool reduce_on(std::string_view target, std::byte* out, const std::byte* a, const std::byte* b,
               std::size_t count, DType dtype, const Reduction& how, Weights weights = {});
bool reduce_all_on(std::string_view target, std::byte* out, std::byte* also,
                   std::span<const std::byte* const> from, std::size_t count, DType dtype,
                   const Reduction& how);

}  // namespace pc
