"""torch's reduce operations in our words."""

from __future__ import annotations

from typing import Any

from torch.distributed import ReduceOp

from pycollective import _core
from pycollective.errors import Unsupported

__all__ = ["NAMES", "op_of"]

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
