"""A bucket of gradients, and the place of each in it."""

# ruff: noqa: ANN401  arrays of any library
from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from pycollective._core import Group, Work
from pycollective.arrays import Library
from pycollective.arrays.library import Memory
from pycollective.blocks import library_for
from pycollective.errors import CollectiveError, InvalidArgument
from pycollective.gradients.compression import cast, wire_for
from pycollective.gradients.layout import Slot
from pycollective.heap import empty

if TYPE_CHECKING:
    from pycollective._core import Op

__all__ = ["Bucket", "Place"]

LARGE_NBYTES = 1 << 18


class Bucket:
    """Gradients that travel together: one block of memory, and what is known of it in this step.

    A large gradient may be reduced where it lies; its place in the block is then unused. The arrays of a call must be
    equal on all ranks, wherever they lie, so large ones are always arrays of their own, and what stands between them is
    one array.
    """

    def __init__(self, slots: list[Slot], library: Library, like: Any, compression: str | None) -> None:
        self.names = tuple(slot.name for slot in slots)
        self.memory: Memory = empty(sum(slot.nbytes for slot in slots), np.uint8)
        counts = [math.prod(slot.shape) for slot in slots]
        self.flat = library.on(self.memory, like, (sum(counts),))
        self.wire = wire_for(self.flat, slots[0].dtype, compression)
        self.pieces: list[tuple[str, Any]] = []  # the name of a large gradient or none, and its place
        self._cut(slots, counts)
        self.in_place: dict[str, Any] = {}  # gradients that are reduced where they lie
        self.missing = set(self.names)
        self.work: Work[Any] | None = None

    def _cut(self, slots: list[Slot], counts: list[int]) -> None:
        begin = end = 0
        for slot, count in zip(slots, counts, strict=True):
            if self.wire is None and slot.nbytes >= LARGE_NBYTES:
                if begin < end:
                    self.pieces.append(("", self.flat[begin:end]))
                self.pieces.append((slot.name, self.flat[end : end + count].reshape(slot.shape)))
                begin = end + count
            end += count
        if begin < end or not self.pieces:
            self.pieces.append(("", self.flat[begin:end] if self.wire is None else self.wire))
        self.large = {name for name, _ in self.pieces}

    def launch(self, group: Group, op: Op, timeout: float | None) -> None:
        """Begins its allreduce."""
        if self.wire is not None:
            cast(self.wire, self.flat)
        arrays = [self.in_place.get(name, piece) for name, piece in self.pieces]
        self.work = group.allreduce_async(arrays if len(arrays) > 1 else arrays[0], op, timeout=timeout)

    def error(self) -> CollectiveError | None:
        """Waits until it is reduced, or cannot be."""
        assert self.work is not None
        error = self.work.exception()
        if error is None and self.wire is not None:
            cast(self.flat, self.wire)
        return error

    def clear(self) -> None:
        """Begins a new step."""
        self.missing = set(self.names)
        self.in_place.clear()
        self.work = None


class Place:
    """Where one gradient lies."""

    def __init__(self, slot: Slot, library: Library, bucket: Bucket, begin: int, like: Any) -> None:
        self.slot = slot
        self.library = library
        self.bucket = bucket
        self.memory = bucket.memory[begin : begin + slot.nbytes]
        self.view = library.on(self.memory, like, slot.shape)

    def check(self, gradient: Any) -> None:
        """Refuses a gradient that does not belong here."""
        library = self.library
        if not library.owns(gradient):
            library = library_for("GradientReducer", f'the gradient of "{self.slot.name}"', gradient)
        shape, dtype = library.shape(gradient), library.dtype(gradient)
        in_numpy = isinstance(gradient, np.ndarray) and isinstance(self.view, np.ndarray)
        if (shape, dtype) != self.slot[1:3] or not (library is self.library or in_numpy):
            raise InvalidArgument(
                f"GradientReducer: the gradient of {self.slot.words()} is a {library.name} array "
                f"{dtype}{list(shape)}; the parameter was a {self.library.name} array"
            )

    def take(self, gradient: Any, *, in_place: bool) -> Any:
        """Copies a gradient into the bucket, or has it reduced where it lies. Returns the one to be reduced."""
        if gradient is self.view:
            return gradient
        library = self.library
        if (
            in_place
            and self.slot.name in self.bucket.large
            and library.mutable
            and library.owns(gradient)
            and library.is_block(gradient)
            and not library.why_not_written(gradient)
        ):
            self.bucket.in_place[self.slot.name] = gradient
            return gradient
        library.assign(self.view, gradient)
        return self.view

    def result(self) -> Any:
        """What the caller gets."""
        if not self.library.mutable:
            return self.library.finished(self.view.copy(), self.view)
        return self.bucket.in_place.get(self.slot.name, self.view)
