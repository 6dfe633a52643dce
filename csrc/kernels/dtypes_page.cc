#include "kernels/dtypes_page.h"

#include <string_view>

#include "kernels/reduce.h"

namespace pc {
namespace {

constexpr std::string_view kIntroduction = R"(# Element types and operations

This page shows which element types can be reduced by which operations, and how the operations compute.
`dtypes_markdown()` in `csrc/kernels/dtypes_page.cc` generates it from the kernels; change those, not this page.

Every type of the table can be moved: broadcast, sent and received. `yes` means that `allreduce` and `reduce` can reduce
the type by that operation; everything else is refused with `Unsupported` before anything is sent. "mean" is another
name for "avg", and "add" for "sum". `scaled sum` is the operation that `pycollective.scaled("sum", factor)` returns.

)";

constexpr std::string_view kDefinitions = R"(
`bytes` is any other NumPy dtype of fixed size without Python objects inside: records, `datetime64`, `timedelta64`, `S`,
`U`, `V`, `longdouble`, `clongdouble`, and the other types of ml_dtypes. These arrays are moved unchanged and never
reduced. All ranks must use the same dtype, including its fields; otherwise they raise `CollectiveMismatch`. To reduce
such an array, view it as a type of the table, for example dates by `x.view("int64")`.

Always refused are object arrays and records with objects inside, NumPy's variable-width strings, foreign byte order
(convert by `x.astype(x.dtype.newbyteorder("="))`), and types of other libraries that are not in the table (move them by
`x.view(torch.uint8)`).

Python's own numbers, alone or in lists, have no dtype: `int` is moved as int64 (a larger one as uint64), and `float` as
float64. Reductions of `int` are exact and never wrap: each int travels as three int64, from which all ranks determine
whether the result fits into 64 bits. If it does not fit, the ranks that receive it raise `InvalidArgument` after the
call, and the group remains usable; `sum(pc.allgather_object(x))` is exact for any ints. So in a reduction an `int`
matches an `int` or `np.int64` of another rank, but no array. A `bool` counts as 0 or 1 in sum and prod, as in Python:
True + True is 2. So does a `np.bool_`, such as `(predicted == wanted).all()`; its sum is an `np.int64`. NumPy's other
scalars are arrays without axes and follow the table.

## What the operations do

Results have the same bits on all ranks and on every processor (except for payloads of NaN). The algorithm, the number
of ranks and the size of the array determine the order in which ranks are combined, so that the same call gives the same
bits again.

- **Integers** wrap around in sum and prod, as in NumPy's arrays. Nothing is widened: a sum of uint8 is a uint8.
- **avg** is for floats and complex numbers. Integers and bool have no avg, because it would have to round, and because
  a sum may have wrapped before it is divided: convert to a float type first, or use "sum" and divide. For float32,
  float64 and complex numbers it is the sum, divided once by the number of ranks. For float16, bfloat16 and float8 it is
  a running weighted mean, so it neither overflows nor loses small values to an early division; it is rounded at every
  step.
- **bool** arrays: any byte except 0 is true; results are 0 or 1. sum, max, bor and lor are "or"; prod, min, band and
  land are "and"; bxor and lxor are "exclusive or".
- **land, lor, lxor** treat every value except 0 as true, including NaN, and give 1 or 0 of the same dtype, also in a
  world of one.
- **NaN**: min, max, minloc and maxloc give NaN if any rank has one. Sums, products and means follow IEEE 754.
- **Signed zero**: min and max treat -0 as less than +0 (IEEE 754-2019, minimum and maximum); sums follow IEEE 754.
- **float16, bfloat16, float8** are computed in float32 and rounded to nearest even after every step, not once at the
  end: each of the n - 1 additions of n ranks may round.
- **Overflow** of float16, bfloat16 and float8_e5m2 gives infinity. float8_e4m3fn has no infinity and gives NaN beyond
  448 plus half a step, as conversions of ml_dtypes and PyTorch do. It does not saturate.
- **Complex numbers** have no order, hence no min and max. A product is (ac - bd) + (ad + bc)i, with each operation
  rounded and none fused; infinities and NaN follow from that, without the recovery of Annex G of C.
- **minloc, maxloc** work on pairs (value, location), adjacent in memory and both of the array's dtype: the last axis
  has length 2, and is never cut. The smallest (largest) value wins with its location, by the order of min and
  max. Of equal values, and of two NaN, the one with the smaller location is taken (MPI 4.1, section 6.9.4). A float
  represents whole locations exactly up to 2^24 (float32) or 2^53.
- **scaled sum** multiplies the contribution of each rank by the factor once and adds the products: the sum of x *
  factor over all ranks, as NCCL's PreMulSum. The factor is rounded to float64 for float64 and complex128, else to
  float32, and each product is rounded before it is added. The factor must be the same on all ranks.
)";

std::string row(std::string_view first, const auto& cell) {
  std::string text = "| " + std::string(first) + " |";
  for (int o = 0; o < kReduceOpCount; ++o) text += " " + std::string(cell(static_cast<ReduceOp>(o))) + " |";
  return text + "\n";
}

}  // namespace

std::string dtypes_markdown() {
  std::string page(kIntroduction);
  page += row("", [](ReduceOp op) { return name_of(op); });
  page += row("---", [](ReduceOp) { return "---"; });
  for (int d = 0; d < kDTypeCount; ++d) {
    const DType dtype = static_cast<DType>(d);
    page += row("`" + std::string(name_of(dtype)) + "`",
                [dtype](ReduceOp op) { return can_reduce(dtype, op) ? "yes" : "no"; });
  }
  return page += kDefinitions;
}

}  // namespace pc
