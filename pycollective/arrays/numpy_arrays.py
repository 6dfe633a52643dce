"""NumPy arrays that are not contiguous."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from pycollective.arrays.library import Memory, OneByOne, Shape
from pycollective.arrays.overlaps import Layout, overlaps_itself

__all__ = ["NumpyArrays"]

_name_of = functools.lru_cache(maxsize=256)(
    str
)  # returns the name of a dtype; cached, because NumPy takes longer for it than for a small copy


class NumpyArrays(OneByOne):
    """numpy.ndarray and its subclasses."""

    name = "numpy"
    mutable = True

    def owns(self, x: Any) -> bool:
        return isinstance(x, np.ndarray)

    def shape(self, x: Any) -> Shape:
        return tuple(x.shape)

    def dtype(self, x: Any) -> str:
        return _name_of(x.dtype)

    def nbytes(self, x: Any) -> int:
        return int(x.nbytes)

    def is_block(self, x: Any) -> bool:
        # The core refuses masked arrays and arrays of objects, so they need no packing.
        return bool(x.flags.c_contiguous) or x.dtype.hasobject or isinstance(x, np.ma.MaskedArray)

    def order(self, x: Any) -> Shape:
        return tuple(range(len(self.shape(x))))

    def layout(self, x: Any) -> Layout:
        return Layout(x.__array_interface__["data"][0], x.shape, x.strides, x.itemsize)

    def on(self, memory: Memory, like: Any, shape: Shape) -> Any:
        return memory.view(like.dtype).reshape(shape) if memory.size else np.empty(shape, like.dtype)

    def empty(self, like: Any, shape: Shape) -> Any:
        return np.empty(shape, like.dtype)

    def assign(self, target: Any, source: Any) -> None:
        np.copyto(target, source, casting="no")

    def finished(self, block: Any, like: Any) -> Any:
        return block

    def moved(self, x: Any, source: int, target: int) -> Any:
        return np.moveaxis(x, source, target)

    def why_not_written(self, x: Any) -> str:
        if not x.flags.writeable:
            return "is read-only: pass a copy, or out="
        if not x.flags.c_contiguous and overlaps_itself(self.layout(x)):
            return (
                f"of shape {x.shape} is expanded: several of its elements share one place in memory. Pass a copy: "
                "numpy.ascontiguousarray(x)"
            )
        return ""
