"""The interface of an array library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from pycollective.arrays.overlaps import Layout

__all__ = ["Library", "Memory", "OneByOne"]

Memory = npt.NDArray[np.uint8]  # contiguous bytes
Shape = tuple[int, ...]


class Library(Protocol):
    """One array library.

    A "block" is an array of this library, or of NumPy, that the core can use in place.
    """

    name: str
    mutable: bool  # whether its arrays can be written; otherwise results are new arrays

    def owns(self, x: Any) -> bool:
        """Return whether `x` is an array of this library."""

    def shape(self, x: Any) -> Shape:
        """Return the lengths of the axes."""

    def dtype(self, x: Any) -> str:
        """Return NumPy's name for the element type."""

    def nbytes(self, x: Any) -> int:
        """Return the size of the elements in bytes."""

    def is_block(self, x: Any) -> bool:
        """Return whether the core can use the memory of `x` in place."""

    def order(self, x: Any) -> Shape:
        """Return the axes in memory order, the slowest first.

        Index order is returned if the array is contiguous in it or has gaps, and always by all
        libraries except torch's.
        """

    def layout(self, x: Any) -> Layout:
        """Return the memory layout of `x`."""

    def on(self, memory: Memory, like: Any, shape: Shape) -> Any:
        """Return a block in `memory` with that shape and with the element type of `like`."""

    def empty(self, like: Any, shape: Shape) -> Any:
        """Return a new block of that shape with the element type of `like`, uninitialised."""

    def assign(self, target: Any, source: Any) -> None:
        """Copy elements between equal shapes.

        `target` is a block or a writable array of this library.
        """

    def assign_many(self, targets: Sequence[Any], sources: Sequence[Any]) -> None:
        """Do assign() for each pair, in a single call if the library has one for many copies."""

    def finished(self, block: Any, like: Any) -> Any:
        """Return the result for the caller: the block from empty(), or an array made from it."""

    def moved(self, x: Any, source: int, target: int) -> Any:
        """Return a view with axis `source` moved to position `target`."""

    def why_not_written(self, x: Any) -> str:
        """Return why `x` cannot receive a result, or an empty string if it can."""


class OneByOne:
    """Base class of libraries that have no single call for many copies."""

    def assign_many(self: Library, targets: Sequence[Any], sources: Sequence[Any]) -> None:
        """Do assign() for each pair."""
        for target, source in zip(targets, sources, strict=True):
            self.assign(target, source)
