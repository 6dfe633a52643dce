"""Python's numbers, lists and tuples of them (vectors), and NumPy's scalars.

A result has the type of the argument. In calls that move data an int has 64 bits, and larger ints
are refused. exact_ints.py describes ints in reductions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pycollective.arrays.library import Memory, Shape
from pycollective.arrays.numpy_arrays import NumpyArrays
from pycollective.errors import InvalidArgument

__all__ = ["Numbers", "is_number"]

_KINDS = (bool, int, float, complex, np.generic)


def is_number(x: Any) -> bool:
    """Return whether `x` is a single number."""
    return isinstance(x, _KINDS)


def _is_integer(x: Any) -> bool:
    return isinstance(x, (int, np.integer))


class Numbers(NumpyArrays):
    """Python's and NumPy's numbers. Their blocks are NumPy arrays.

    The blocks of Python's numbers have the type int64, float64, complex128 or bool.
    """

    name = "numbers"
    mutable = False

    def owns(self, x: Any) -> bool:
        return is_number(x) or (isinstance(x, (list, tuple)) and len(x) > 0 and all(map(is_number, x)))

    def array(self, x: Any) -> Any:
        """Return `x` as a NumPy array, or `x` itself if it is one."""
        if isinstance(x, np.ndarray):
            return x
        try:
            array = np.array(x)
        except OverflowError:
            array = np.array(None)
        is_rounded = array.dtype.kind == "f" and isinstance(x, (list, tuple)) and all(map(_is_integer, x))
        if array.dtype.hasobject or is_rounded:
            raise InvalidArgument(
                f"{x!r:.60} does not fit into 64 bits: pass it to an _object call, or as float"
            )
        return array

    def shape(self, x: Any) -> Shape:
        return tuple(self.array(x).shape)

    def dtype(self, x: Any) -> str:
        return str(self.array(x).dtype)

    def nbytes(self, x: Any) -> int:
        return int(self.array(x).nbytes)

    def is_block(self, x: Any) -> bool:
        return False

    def on(self, memory: Memory, like: Any, shape: Shape) -> Any:
        return super().on(memory, self.array(like), shape)

    def empty(self, like: Any, shape: Shape) -> Any:
        return np.empty(shape, self.array(like).dtype)

    def assign(self, target: Any, source: Any) -> None:
        np.copyto(target, self.array(source), casting="no")

    def finished(self, block: Any, like: Any) -> Any:
        if isinstance(like, np.ndarray):
            return block  # `like` is an array of several numbers
        if isinstance(like, np.generic):
            return block[()]
        values = block.tolist()
        return like._make(values) if hasattr(like, "_make") else type(like)(values)

    def moved(self, x: Any, source: int, target: int) -> Any:
        return np.moveaxis(self.array(x), source, target)

    def why_not_written(self, x: Any) -> str:
        return "is no array: its value cannot be replaced"
