"""What there is to know of an array library."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["Library", "Memory", "itself_overlaps", "span_of"]

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

    def span(self, x: Any) -> tuple[int, int]:
        """First address of its elements, and the one after the last. It has elements."""

    def on(self, memory: Memory, like: Any, shape: Shape) -> Any:
        """A block of that shape and of `like`'s element type on that memory."""

    def empty(self, like: Any, shape: Shape) -> Any:
        """A new block, contents unspecified."""

    def assign(self, target: Any, source: Any) -> None:
        """Copy elements; both have one shape. `target` is a block, or an array of this library that can be written."""

    def finished(self, block: Any, like: Any) -> Any:
        """What the caller gets for a block of empty(): the same, or an array of the library."""

    def moved(self, x: Any, source: int, target: int) -> Any:
        """A view with axis `source` at place `target`."""

    def why_not_written(self, x: Any) -> str:
        """Why the result cannot be written to `x`, or an empty text."""


def span_of(address: int, shape: Shape, strides: Shape, itemsize: int) -> tuple[int, int]:
    """Of the element at index 0, 0, ... the address is known; strides in bytes. There are elements."""
    steps = [(length - 1) * stride for length, stride in zip(shape, strides, strict=True)]
    return address + sum(s for s in steps if s < 0), address + sum(s for s in steps if s > 0) + itemsize


def itself_overlaps(shape: Shape, strides: Shape, itemsize: int) -> bool:
    """Whether two elements may share memory. Strides in bytes. Never False where they do."""
    if 0 in shape:
        return False
    reach = itemsize
    for stride, length in sorted((abs(s), n) for s, n in zip(strides, shape, strict=True) if n > 1):
        if stride < reach:
            return True
        reach += stride * (length - 1)
    return False
