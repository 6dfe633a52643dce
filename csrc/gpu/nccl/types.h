// Our element types and operations in NCCL's words, where both mean the same. docs/dtypes.md says what ours mean.
//
// Everything can be moved: NCCL sees bytes. What NCCL reduces:
//
// | ours                        | NCCL                          | the same?                                                   |
// |-----------------------------|-------------------------------|-------------------------------------------------------------|
// | integers sum, prod          | ncclSum, ncclProd             | yes, both wrap                                              |
// | integers min, max           | ncclMin, ncclMax              | yes                                                         |
// | int16, uint16               | no such type                  | refused                                                     |
// | integers avg                | truncates                     | refused; ours has none                                      |
// | bool sum, max, bor, lor     | ncclMax of uint8              | yes, of bytes 0 and 1. Any other byte is true before and after, |
// | bool prod, min, band, land  | ncclMin of uint8              |   but need not become 1: kernels that care make it 1 first  |
// | bool bxor, lxor             | -                             | refused: a sum of bytes is not 0 or 1                       |
// | floats sum, prod            | ncclSum, ncclProd             | yes; the order of the ranks is NCCL's own, the same at each |
// |                             |                               |   call of one size. With NVLink SHARP 16-bit sums round once |
// | floats min, max             | ncclMin, ncclMax              | refused: fminf drops a NaN, ours keeps it; signs of zero    |
// | float16 avg                 | ncclAvg                       | refused: it divides before it adds, so small values become 0 |
// | bfloat16, float32, float64  | ncclAvg                       | yes, up to rounding: each contribution is multiplied by 1/n, |
// |   avg                       |                               |   rounded to that type, where ours divides once or keeps a  |
// |                             |                               |   running mean. Exact where n is a power of two             |
// | floats scaled sum           | ncclRedOpCreatePreMulSum      | yes, for a factor that the type holds exactly (float32 and  |
// |                             |                               |   float64: any, rounded as ours). The product may be fused  |
// | complex sum, scaled sum, avg| that of twice as many reals   | as of the reals                                             |
// | complex prod                | -                             | refused                                                     |
// | float8, everything          | ncclSum of float8 saturates   | refused: ours becomes infinity or NaN                       |
// | band, bor, bxor, land, lor, | -                             | refused                                                     |
// |   lxor, minloc, maxloc      |                               |                                                             |
//
// What is refused can still go through NCCL as bytes (alltoall, allgather) with our own kernels between.
#pragma once

#include <cstddef>
#include <variant>

#include "base/status.h"
#include "base/types.h"
#include "gpu/nccl/abi.h"

namespace pc::nccl {

// Of data that are moved as they are: how many elements of NCCL's one of ours is.
struct Moved {
  DataType dtype = DataType::kUint8;
  std::size_t per_element = 1;
};
inline Moved moved(DType dtype) { return {DataType::kUint8, size_of(dtype)}; }

// The factor of a scaled sum, in the type that NCCL reads it in.
union Scalar {
  double f64 = 0;
  float f32;
  uint16_t bits16;
};

struct Reduced {
  DataType dtype = DataType::kUint8;
  RedOp op = RedOp::kSum;  // of a scaled sum: kFirstOwn, which stands for the one made with `scalar`
  std::size_t per_element = 1;
  Scalar scalar = {};
  bool is_scaled() const { return op == RedOp::kFirstOwn; }
};
// kUnsupported, with the reason: NCCL cannot, or means something else.
Result<Reduced> reduced(DType dtype, const Reduction& how);

}  // namespace pc::nccl
