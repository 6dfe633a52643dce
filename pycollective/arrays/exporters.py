"""Objects of other libraries with the buffer protocol or DLPack. New arrays are NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from pycollective.arrays.library import Memory, Shape
from pycollective.arrays.numpy_arrays import NumpyArrays
from pycollective.arrays.overlaps import Layout
from pycollective.errors import InvalidArgument

__all__ = ["Exporters"]


class Exporters(NumpyArrays):
    """bytearray, memoryview, array.array, and arrays of libraries that have no module here."""

    name = "exporters"

    def owns(self, x: Any) -> bool:
        if hasattr(x, "__dlpack__"):
            return True
        try:
            memoryview(x)
        except TypeError:
            return False
        return True

    def array(self, x: Any) -> Any:
        """Return a NumPy array that shares the memory of `x`."""
        if isinstance(x, np.ndarray):
            return x
        try:
            return np.asarray(memoryview(x))
        except TypeError:
            pass
        try:
            return np.from_dlpack(x)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise InvalidArgument(f"{type(x).__name__} cannot be read by NumPy: {error}") from None

    def shape(self, x: Any) -> Shape:
        return super().shape(self.array(x))

    def dtype(self, x: Any) -> str:
        return super().dtype(self.array(x))

    def nbytes(self, x: Any) -> int:
        return super().nbytes(self.array(x))

    def is_block(self, x: Any) -> bool:
        return super().is_block(self.array(x))

    def layout(self, x: Any) -> Layout:
        return super().layout(self.array(x))

    def on(self, memory: Memory, like: Any, shape: Shape) -> Any:
        return super().on(memory, self.array(like), shape)

    def empty(self, like: Any, shape: Shape) -> Any:
        return super().empty(self.array(like), shape)

    def assign(self, target: Any, source: Any) -> None:
        super().assign(self.array(target), self.array(source))

    def moved(self, x: Any, source: int, target: int) -> Any:
        return super().moved(self.array(x), source, target)

    def why_not_written(self, x: Any) -> str:
        return super().why_not_written(self.array(x))
