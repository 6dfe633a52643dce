"""Reductions of Python's ints: the checks of out=, writing to it, and messages for mismatches."""

# ruff: noqa: ANN401  arrays of any library
from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from pycollective.arrays.exact_ints import WORDS, array_of
from pycollective.arrays.gpu_arrays import is_on_gpu
from pycollective.arrays.library import Library, Shape
from pycollective.calls.blocks import writable_for
from pycollective.calls.scratch import Scratch
from pycollective.errors import CollectiveMismatch, InvalidArgument

__all__ = ["int_target", "mismatches_explained", "write_ints"]

DTYPES = ("int64", "uint64")


def int_target(function: str, out: Any, shape: Shape) -> Library:
    """Return the library of `out`, which receives ints. Checks dtype and shape, but not values."""
    target = writable_for(function, "out", out)
    if target.dtype(out) not in DTYPES or target.shape(out) != shape or is_on_gpu(out):
        raise InvalidArgument(
            f"{function}: out is {target.dtype(out)} of shape {target.shape(out)}, but x is of ints: out must be int64 "
            f"or uint64 of shape {shape}, on the host"
        )
    return target


def write_ints(function: str, values: int | Sequence[int], op: str, target: Library, out: Any) -> None:
    """Write the ints to `out`.

    Raises InvalidArgument, and leaves `out` unchanged, if they do not fit.
    """
    numbers = array_of(function, values, op, target.dtype(out))
    with Scratch() as scratch:
        memory = scratch.take(numbers.nbytes)
        memory.view(numbers.dtype).reshape(numbers.shape)[...] = numbers
        target.assign(out, target.on(memory, out, numbers.shape))


@contextlib.contextmanager
def mismatches_explained() -> Iterator[None]:
    """Add the kind of this rank's ints to a mismatch error. The core knows only arrays of words."""
    try:
        yield
    except CollectiveMismatch as error:
        error.args = (
            f"{error}\nThis rank has Python's ints, or an int64 of NumPy, which travel as {WORDS} int64 each: pass "
            "such on all ranks, or arrays on all, as numpy.array(x)",
        )
        raise
