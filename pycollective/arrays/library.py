"""What there is to know of an array library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from pycollective.arrays.overlaps import Layout

__all__ = ["Library", "Memory", "OneByOne"]

Memory = npt.NDArray[np.uint8]  # bytes in one block
Shape = tuple[int, ...]


class Library(Protocol):
    """One array library. "Block": one of its arrays (or NumPy's) whose memory the core can take as it lies."""

    name: str
    mutable: bool  # its arrays can be written; else results come back as new ones

    def owns(self, x: Any) -> bool:
        """Whether `x` is one of its arrays."""

    def shape(self, x: Any) -> Shape:
        """The lengths of the axes."""

    def dtype(self, x: Any) -> str:
        """NumPy's name of the element type."""

    def nbytes(self, x: Any) -> int:
        """Size of the elements in bytes."""

    def is_block(self, x: Any) -> bool:
        """Whether the core can take its memory as it lies, to read it."""

    def order(self, x: Any) -> Shape:
        """Its axes as they lie in memory, the slowest first; just as they are counted, if that makes no difference."""

    def layout(self, x: Any) -> Layout:
        """Where its elements lie."""

    def on(self, memory: Memory, like: Any, shape: Shape) -> Any:
        """A block of that shape and of `like`'s element type on that memory."""

    def empty(self, like: Any, shape: Shape) -> Any:
        """A new block, contents unspecified."""

    def assign(self, target: Any, source: Any) -> None:
        """Copy elements; both have one shape. `target` is a block, or an array of this library that can be written."""

    def assign_many(self, targets: Sequence[Any], sources: Sequence[Any]) -> None:
        """As assign() for each of them, in one call of the library where it has one."""

    def finished(self, block: Any, like: Any) -> Any:
        """What the caller gets for a block of empty(): the same, or an array of the library."""

    def moved(self, x: Any, source: int, target: int) -> Any:
        """A view with axis `source` at place `target`."""

    def why_not_written(self, x: Any) -> str:
        """Why the result cannot be written to `x`, or an empty text."""


class OneByOne:
    """What a library inherits that has no one call for many copies."""

    def assign_many(self: Library, targets: Sequence[Any], sources: Sequence[Any]) -> None:
        """As assign() for each of them."""
        for target, source in zip(targets, sources, strict=True):
            self.assign(target, source)
