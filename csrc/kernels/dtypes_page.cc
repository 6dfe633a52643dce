#include "kernels/dtypes_page.h"

#include <string_view>

#include "kernels/reduce.h"

namespace pc {
namespace {

constexpr std::string_view kIntroduction = R"(# Element types and operations

Written from the kernels by `dtypes_markdown()` in `csrc/kernels/dtypes_page.cc`; change those, not this page.

Every type of the table can be moved: broadcast, sent, received. `yes` says what it can be reduced with, by `allreduce` and
`reduce`; everything else is refused with `Unsupported` before anything is sent. "mean" is another name for "avg", and "add"
for "sum". `scaled sum` is what `pycollective.scaled("sum", factor)` gives.

)";

constexpr std::string_view kDefinitions = R"(
`bytes` is any other NumPy dtype of fixed size without Python objects inside: records, `datetime64`, `timedelta64`, `S`, `U`,
`V`, `longdouble`, `clongdouble`, and the other types of ml_dtypes. They are moved as they are and never reduced. Every rank must
name the same dtype, fields and all: else they get CollectiveMismatch. To reduce one, view it as a type of the table, such as `x.view("int64")` for dates.

Refused altogether: object arrays and records with objects inside, NumPy's variable-width strings, foreign byte order
(`x.astype(x.dtype.newbyteorder("="))`), and what other libraries have beyond the table (`x.view(torch.uint8)`).

Python's own numbers, alone or in lists, have no dtype: `int` and `float` are moved as int64 (what is larger as uint64) and
float64. Reductions of `int` are exact, and never wrap: each int travels as three int64, so that the ranks find out together whether
the result fits into 64 bits. Where it does not, those whose result it is raise InvalidArgument when the call has been made, and the
group goes on; `sum(pc.allgather_object(x))` is exact for any ints. So an `int` meets another one, or NumPy's int64, and no array. A
`bool` counts as 0 or 1 in sum and prod, as in Python: True + True is 2; so does a `np.bool_`, such as
`(predicted == wanted).all()`, whose sum is an `np.int64`. NumPy's other scalars are arrays without axes, and follow the table.

## What the operations do

Results are the same bits on all ranks and on every processor (payloads of NaN aside). The order in which ranks are combined is
given by the algorithm, their number and the size of the array, so that the same call gives the same bits again.

- **Integers** wrap around in sum and prod, as NumPy's arrays do. Nothing is widened: a sum of uint8 is a uint8.
- **avg** is for floats and complex numbers. Integers and bool have none, because it would have to round, and a sum may have wrapped
  before it is divided: convert to a float type first, or use "sum" and divide. For float32, float64 and complex numbers it is the
  sum, divided once by the number of ranks. For float16, bfloat16 and float8 it is a running weighted mean, so it can neither
  overflow nor lose small values to an early division; it is rounded at every step.
- **bool** arrays: any byte but 0 is true; results are 0 or 1. sum, max, bor and lor are "or"; prod, min, band and land are "and"; bxor and
  lxor are "exclusive or".
- **land, lor, lxor** take all but 0 for true, NaN too, and give 1 or 0 of the same dtype; in a world of one as well.
- **NaN**: min and max give NaN if any rank has one; so do minloc and maxloc. Sums, products and means follow IEEE 754.
- **Signed zero**: min and max hold -0 to be less than +0 (IEEE 754-2019, minimum and maximum); sums follow IEEE 754.
- **float16, bfloat16, float8** are computed in float32 and rounded to nearest even after every step, not once at the end: each of
  the n - 1 additions of n ranks may round.
- **Overflow** of float16, bfloat16 and float8_e5m2 gives infinity. float8_e4m3fn has no infinity: there it gives NaN, beyond 448
  plus half a step, as ml_dtypes and PyTorch convert. It does not saturate.
- **Complex numbers** have no order, hence no min and max. A product is (ac - bd) + (ad + bc)i, each operation rounded, nothing
  fused; infinities and NaN follow from that, without the recovery of Annex G of C.
- **minloc, maxloc** work on pairs (value, location), neighbours in memory and both of the array's dtype: the last axis has length 2,
  and counts are in elements. The smallest (largest) value wins with its location, by the order of min and max. Of equal values, the
  smaller location is taken (MPI 4.1, section 6.9.4); of two NaN as well. A float holds whole locations up to 2^24 (float32) or 2^53.
- **scaled sum** multiplies the contribution of each rank by the factor, once, and adds: the sum of x * factor over all ranks, as
  NCCL's PreMulSum. The factor is rounded to float64 for float64 and complex128, else to float32, and each product is rounded before
  it is added. It must be the same on all ranks.
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
