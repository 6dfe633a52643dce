"""torch's reduce operations in our words.

ReduceOp.AVG of integers is what NCCL makes of it: the sum, which wraps as any sum of that type does, divided by the
number of ranks, rounded towards zero. The core averages floating point alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.distributed import ReduceOp

from pycollective import _core
from pycollective.errors import Unsupported

__all__ = ["NAMES", "is_mean_of_integers", "op_for", "op_of"]

# By hash, which is the operation's number: comparing two ReduceOps takes a microsecond.
NAMES: dict[int, Any] = {
    hash(ReduceOp(op)): name
    for op, name in (
        (ReduceOp.SUM, "sum"),
        (ReduceOp.AVG, "avg"),
        (ReduceOp.PRODUCT, "prod"),
        (ReduceOp.MIN, "min"),
        (ReduceOp.MAX, "max"),
        (ReduceOp.BAND, "band"),
        (ReduceOp.BOR, "bor"),
        (ReduceOp.BXOR, "bxor"),
    )
}


def op_of(reduce_op: Any) -> Any:  # noqa: ANN401  the binding's Op
    """Of ReduceOp.SUM "sum", and so on; of PREMUL_SUM a scaled sum."""
    name = NAMES.get(hash(reduce_op))
    if name is not None:
        return name
    state = reduce_op.__getstate__()  # of PREMUL_SUM its factor too, which nothing else tells
    if not isinstance(state, tuple) or len(state) != 2 or state[0] != ReduceOp.PREMUL_SUM:
        raise Unsupported(f"reduce operation {reduce_op} is not supported: use {', '.join(NAMES.values())}")
    return _core.scaled("sum", float(state[1]))  # it may be a tensor of one element


INTEGERS = frozenset(
    (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64)
)
LOW_63_BITS = (1 << 63) - 1


def is_mean_of_integers(op: Any, dtype: torch.dtype) -> bool:  # noqa: ANN401  the binding's Op
    """Whether the core leaves the division to us."""
    return op == "avg" and dtype in INTEGERS


def op_for(
    op: Any,  # noqa: ANN401  the binding's Op
    dtype: torch.dtype,
    size: int,
    out: torch.Tensor | None,
    after: Callable[[], None] | None = None,
) -> tuple[Any, Callable[[], None] | None]:
    """The operation of a call, and what is left to do when it has ended: `after`, and before that what `out` needs."""
    if not is_mean_of_integers(op, dtype):
        return op, after

    def finish() -> None:
        if out is not None:
            divide(out, size)
        if after is not None:
            after()

    return "sum", finish


def divide(sums: torch.Tensor, size: int) -> None:
    """Divides integers in place, rounding towards zero."""
    if sums.dtype == torch.uint64:
        _divide_64_bits(sums.view(torch.int64), size)
    elif sums.dtype in (torch.uint16, torch.uint32) or size > torch.iinfo(sums.dtype).max:
        # torch has no arithmetic of these, or would make a number of that type of the size.
        sums.copy_(sums.to(torch.int64).div_(size, rounding_mode="trunc"))
    else:
        sums.div_(size, rounding_mode="trunc")


def _divide_64_bits(sums: torch.Tensor, size: int) -> None:
    """Unsigned division of what int64 holds as negative numbers, too: first of the upper 63 bits."""
    quotients = ((sums >> 1) & LOW_63_BITS).div_(size, rounding_mode="trunc").mul_(2)
    quotients += sums - quotients * size >= size
    sums.copy_(quotients)
