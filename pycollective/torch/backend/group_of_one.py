"""Calls of a group of one rank: copies by torch, on a GPU in the order of the current stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pycollective.torch.backend.reduce_ops import INTEGERS

__all__ = ["is_done_by_copy"]

NUMBERS = INTEGERS | {torch.float16, torch.bfloat16, torch.float32, torch.float64}
LARGE = (
    4 << 20
)  # bytes; torch's threads copy larger CPU tensors faster, and the core has less overhead for smaller ones
# Operations that return a single operand unchanged.
OF_ONE_ITSELF = frozenset(("sum", "avg", "prod", "min", "max"))


def is_done_by_copy(
    x: torch.Tensor | None,
    out: torch.Tensor | None,
    op: Any,  # noqa: ANN401  the binding's Op
    counts: Sequence[int] | None,
    recv_counts: Sequence[int] | None,
    is_async: bool,
) -> bool:
    """Makes the call if it is a plain copy. Returns whether it did.

    Small or mismatching blocks are left to the core, which reports errors.
    """
    if x is None or not (not is_async if x.is_cuda else x.nbytes >= LARGE):
        return False  # another stream may wait for an asynchronous call on a GPU, so the core must make it
    if not (op is None or (op in OF_ONE_ITSELF and x.dtype in NUMBERS)):
        return False
    length = x.numel()
    for each in (counts, recv_counts):
        if each is not None and (len(each) != 1 or each[0] != length):
            return False
    if out is None or out is x:
        return True
    if out.numel() != length or out.dtype is not x.dtype or out.device != x.device or out.is_inference():
        return False
    # `.data`, so that autograd does not record the write, as with every other backend.
    out.data.view(-1).copy_(x.data.view(-1))
    return True
