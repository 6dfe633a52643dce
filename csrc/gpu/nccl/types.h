// Maps this project's element types and operations to NCCL's where both mean the same.
// docs/dtypes.md defines the meaning here.
//
// NCCL can move every type as bytes. What NCCL reduces:
//
// | here                 | NCCL                | the same?                                        |
// |----------------------|---------------------|--------------------------------------------------|
// | integers sum, prod   | ncclSum, ncclProd   | yes, both wrap                                   |
// | integers min, max    | ncclMin, ncclMax    | yes                                              |
// | int16, uint16        | no such type        | refused                                          |
// | integers avg         | truncates           | refused; there is none here                      |
// | bool sum, max, bor,  | ncclMax of uint8    | yes for bytes 0 and 1. Any other byte is true    |
// |   lor                |                     |   before and after, but need not become 1:       |
// | bool prod, min,      | ncclMin of uint8    |   kernels that depend on it make it 1 first      |
// |   band, land         |                     |                                                  |
// | bool bxor, lxor      | -                   | refused: a sum of bytes is not 0 or 1            |
// | floats sum, prod     | ncclSum, ncclProd   | yes; NCCL chooses the order of ranks, the same   |
// |                      |                     |   for each call of one size. With NVLink SHARP   |
// |                      |                     |   16-bit sums round once                         |
// | floats min, max      | ncclMin, ncclMax    | refused: fminf drops a NaN, which is kept here;  |
// |                      |                     |   signs of zero differ                           |
// | float16 avg          | ncclAvg             | refused: it divides before it adds, so small     |
// |                      |                     |   values become 0                                |
// | bfloat16, float32,   | ncclAvg             | yes, up to rounding: each contribution is        |
// |   float64 avg        |                     |   multiplied by 1/n, rounded to that type, where |
// |                      |                     |   kernels here divide once or keep a running     |
// |                      |                     |   mean. Exact if n is a power of two             |
// | floats scaled sum    | ncclRedOp-          | yes, for a factor that the type holds exactly    |
// |                      |   CreatePreMulSum   |   (float32, float64: any, rounded as here). The  |
// |                      |                     |   product may be fused                           |
// | complex sum, scaled  | that of twice as    | as for the reals                                 |
// |   sum, avg           |   many reals        |                                                  |
// | complex prod         | -                   | refused                                          |
// | float8, everything   | ncclSum of float8   | refused: here the result becomes infinity or NaN |
// |                      |   saturates         |                                                  |
// | band, bor, bxor,     | -                   | refused                                          |
// |   land, lor, lxor,   |                     |                                                  |
// |   minloc, maxloc     |                     |                                                  |
//
// For the refused reductions, NCCL can still move the data as bytes (alltoall, allgather), and this
// project's kernels can reduce them in between.
#pragma once

#include <cstddef>
#include <variant>

#include "base/status.h"
#include "base/types.h"
#include "gpu/nccl/abi.h"

namespace pc::nccl {

// For data that are moved unchanged: the type in which NCCL moves them, and how many elements of
// this type make up one element of the array.
struct Moved {
  DataType dtype = DataType::kUint8;
  std::size_t per_element = 1;
};
inline Moved moved(DType dtype) { return {DataType::kUint8, size_of(dtype)}; }

// The factor of a scaled sum, in the type in which NCCL reads it.
union Scalar {
  double f64 = 0;
  float f32;
  uint16_t bits16;
};

struct Reduced {
  DataType dtype = DataType::kUint8;
  // kFirstOwn for a scaled sum: a placeholder for the operation that is created with `scalar`
  RedOp op = RedOp::kSum;
  std::size_t per_element = 1;
  Scalar scalar = {};
  bool is_scaled() const { return op == RedOp::kFirstOwn; }
};
// Returns how NCCL performs the reduction. Returns kUnsupported with the reason if NCCL cannot
// perform it, or defines it differently.
Result<Reduced> reduced(DType dtype, const Reduction& how);

}  // namespace pc::nccl
