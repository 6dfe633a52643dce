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


class Bucket:
    """Gradients that travel together: one block of memory, and what is known of it in this step.

    All of them are copied there. The arrays that autograd makes may be somebody else's as well (the gradient of a view,
    of a sum), and one copy of memory that was just written costs less than reducing it where the ranks do not share it.
    """

    def __init__(self, slots: list[Slot], library: Library, like: Any, compression: str | None) -> None:
        self.names = tuple(slot.name for slot in slots)
        self.memory: Memory = empty(sum(slot.nbytes for slot in slots), np.uint8)
        self.flat = library.on(self.memory, like, (sum(math.prod(slot.shape) for slot in slots),))
        self.wire = wire_for(self.flat, slots[0].dtype, compression)
        self.missing = set(self.names)
        self.work: Work[Any] | None = None

    def launch(self, group: Group, op: Op, timeout: float | None) -> None:
        """Begins its allreduce."""
        if self.wire is not None:
            cast(self.wire, self.flat)
        self.work = group.allreduce_async(self.flat if self.wire is None else self.wire, op, timeout=timeout)

    def error(self) -> CollectiveError | None:
        """Waits until it is reduced, or cannot be."""
        assert self.work is not None
        self.work._look_on()
        error = self.work.exception()
        if error is None and self.wire is not None:
            cast(self.flat, self.wire)
        return error

    def clear(self) -> None:
        """Begins a new step."""
        self.missing = set(self.names)
        self.work = None


class Place:
    """Where one gradient lies."""

    def __init__(self, slot: Slot, library: Library, bucket: Bucket, begin: int, like: Any) -> None:
        self.slot = slot
        self.library = library
        self.bucket = bucket
        self.memory = bucket.memory[begin : begin + slot.nbytes]
        self.view = library.on(self.memory, like, tuple(slot.shape[axis] for axis in slot.order))
        axes = list(slot.order)
        for axis in range(
            len(axes)
        ):  # torch's fused optimizers take it that a gradient lies as its parameter does
            if (at := axes.index(axis)) != axis:
                self.view = library.moved(self.view, at, axis)
                axes.insert(axis, axes.pop(at))

    def check(self, gradient: Any) -> None:
        """Refuses a gradient that does not belong here."""
        library = self.library
        if not library.owns(gradient):
            library = library_for("GradientReducer", f'the gradient of "{self.slot.name}"', gradient)
        shape, dtype = library.shape(gradient), library.dtype(gradient)
        in_numpy = isinstance(gradient, np.ndarray) and isinstance(self.view, np.ndarray)
        if (shape, dtype) != (self.slot.shape, self.slot.dtype) or not (library is self.library or in_numpy):
            mine, theirs = self.slot.words(), f"{dtype}{list(shape)}"
            raise InvalidArgument(
                f"GradientReducer: the parameter was {mine}, of {self.library.name}, and its gradient is {theirs}, of "
                f"{library.name}"
            )

    def take(self, gradient: Any) -> None:
        """Copies a gradient into the bucket, unless it lies there."""
        if gradient is not self.view:
            self.library.assign(self.view, gradient)

    def result(self) -> Any:
        """What the caller gets."""
        return self.view if self.library.mutable else self.library.finished(self.view.copy(), self.view)
