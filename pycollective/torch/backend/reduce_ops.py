"""Translates torch's reduce operations to ours.

ReduceOp.AVG of integers is computed as NCCL does: the sum, which wraps as any sum of that type
does, is divided by the number of ranks and rounded towards zero. The core averages only
floating-point types.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.distributed import ReduceOp

from pycollective import _core
from pycollective.errors import Unsupported

__all__ = ["NAMES", "is_mean_of_integers", "op_for", "op_of"]

# By hash, which is the operation's number, because comparing two ReduceOps takes a microsecond.
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
    """Returns our operation, such as "sum" for ReduceOp.SUM, or a scaled sum for PREMUL_SUM."""
    name = NAMES.get(hash(reduce_op))
    if name is not None:
        return name
    # The state of PREMUL_SUM includes the factor, for which there is no other accessor.
    state = reduce_op.__getstate__()
    if not isinstance(state, tuple) or len(state) != 2 or state[0] != ReduceOp.PREMUL_SUM:
        raise Unsupported(f"reduce operation {reduce_op} is not supported: use {', '.join(NAMES.values())}")
    return _core.scaled("sum", float(state[1]))  # the factor may be a tensor of one element


INTEGERS = frozenset(
    (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64)
)
LOW_63_BITS = (1 << 63) - 1


def is_mean_of_integers(op: Any, dtype: torch.dtype) -> bool:  # noqa: ANN401  the binding's Op
    """Returns whether the division is done in this module and not in the core."""
    return op == "avg" and dtype in INTEGERS


def op_for(
    op: Any,  # noqa: ANN401  the binding's Op
    dtype: torch.dtype,
    size: int,
    out: torch.Tensor | None,
    after: Callable[[], None] | None = None,
) -> tuple[Any, Callable[[], None] | None]:
    """Returns the core's operation for a call, and the function to run after the call, or None.

    That function divides `out`, if that is needed, and then runs `after`.
    """
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
        # torch has no arithmetic for these types, or `size` does not fit in the type.
        sums.copy_(sums.to(torch.int64).div_(size, rounding_mode="trunc"))
    else:
        sums.div_(size, rounding_mode="trunc")


def _divide_64_bits(sums: torch.Tensor, size: int) -> None:
    """Divides unsigned 64-bit numbers that are viewed as int64: the upper 63 bits first."""
    quotients = ((sums >> 1) & LOW_63_BITS).div_(size, rounding_mode="trunc").mul_(2)
    quotients += sums - quotients * size >= size
    sums.copy_(quotients)
