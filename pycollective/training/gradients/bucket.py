"""A bucket of gradients, and the position of each gradient in it."""

# ruff: noqa: ANN401  arrays of any library
from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from pycollective._core import Group, Work
from pycollective.arrays.gpu_arrays import is_on_gpu
from pycollective.arrays.libraries import Library
from pycollective.arrays.library import Memory
from pycollective.calls.blocks import library_for
from pycollective.errors import CollectiveError, InvalidArgument
from pycollective.runtime.heap import empty
from pycollective.training.gradients.compression import cast, overflowed, wire_for
from pycollective.training.gradients.layout import Slot

if TYPE_CHECKING:
    from pycollective._core import Op

__all__ = ["Bucket", "Place"]


CACHE_LINE_NBYTES = 64


def _aligned(nbytes: int) -> Memory:
    """Returns memory that is aligned to a cache line.

    Copies to NumPy's own memory, which is seldom aligned, take 1.5 times as long.
    """
    memory: Memory = empty(nbytes, np.uint8)
    if memory.ctypes.data % CACHE_LINE_NBYTES == 0:
        return memory
    memory = empty(nbytes + CACHE_LINE_NBYTES, np.uint8)
    begin = -memory.ctypes.data % CACHE_LINE_NBYTES
    return memory[begin : begin + nbytes]


class Bucket:
    """Gradients that are reduced together: one block of memory, and its state in this step.

    All gradients are copied into the block, for two reasons. Arrays that autograd makes may be
    shared with other users (the gradient of a view, of a sum). And copying a gradient that was just
    written costs less than reducing in memory that the ranks do not share. For gradients on a GPU
    the block is on the GPU, and everything follows the order of their library's streams.
    """

    def __init__(
        self, slots: list[Slot], library: Library, like: Any, compression: str | None, title: str
    ) -> None:
        self.title = title  # describes the bucket in errors
        self.names = tuple(slot.name for slot in slots)
        self.nbytes = sum(slot.nbytes for slot in slots)
        count = sum(math.prod(slot.shape) for slot in slots)
        on_gpu = library.name != "jax" and is_on_gpu(like)  # JAX arrays are reduced on the host
        self.memory: Memory | None = None if on_gpu else _aligned(self.nbytes)
        self.flat = (
            library.empty(like, (count,)) if self.memory is None else library.on(self.memory, like, (count,))
        )
        self._dtype, self._compression = slots[0].dtype, compression
        self.wire = wire_for(self.flat, self._dtype, compression)
        self.missing = set(self.names)
        self.work: Work[Any] | None = None

    def launch(self, group: Group, op: Op, timeout: float | None) -> None:
        """Begins the allreduce of the bucket."""
        if self.wire is not None:
            cast(self.wire, self.flat)
        self.work = group.allreduce_async(self.flat if self.wire is None else self.wire, op, timeout=timeout)

    def error(self) -> CollectiveError | None:
        """Waits until the bucket is reduced. Returns the error, or None."""
        assert self.work is not None
        error = self._outcome(self.work)
        if error is None and self.wire is not None:
            cast(self.flat, self.wire)
            if overflowed(self.wire, self._dtype, self._compression):
                return InvalidArgument(
                    'GradientReducer: a float64 gradient or its sum is infinite in compression="f16", which holds '
                    'numbers up to 65504: take compression="bf16", which holds them up to 3e38, or none'
                )
        return error

    def _outcome(self, work: Work[Any]) -> CollectiveError | None:
        if self.memory is not None:
            work._wait_only()
            return work.exception()
        try:
            # Only the GPU waits. The next call reports a later failure, as for any GPU call.
            work.wait()
        except CollectiveError as error:
            return error
        return None

    def clear(self) -> None:
        """Begins a new step."""
        self.missing = set(self.names)
        self.work = None


class Place:
    """The position of one gradient in its bucket. `view` is an array there."""

    def __init__(
        self, slot: Slot, library: Library, bucket: Bucket, begin_nbytes: int, begin: int, like: Any
    ) -> None:
        self.slot = slot
        self.library = library
        self.bucket = bucket
        lengths = tuple(slot.shape[axis] for axis in slot.order)
        self.memory: Memory | None = None
        if bucket.memory is not None:
            self.memory = bucket.memory[begin_nbytes : begin_nbytes + slot.nbytes]
            self.view = library.on(self.memory, like, lengths)
        else:
            self.view = bucket.flat[begin : begin + math.prod(lengths)].reshape(lengths)
            if library.name == "torch":
                # otherwise torch would count a write to one view as a modification of all
                self.view = self.view.data
        axes = list(slot.order)
        for axis in range(
            len(axes)
        ):  # torch's fused optimizers assume that a gradient has the memory layout of its parameter
            if (at := axes.index(axis)) != axis:
                self.view = library.moved(self.view, at, axis)
                axes.insert(axis, axes.pop(at))

    def check(self, gradient: Any) -> None:
        """Raises InvalidArgument for a gradient that does not match its parameter."""
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
        """Copies a gradient into the bucket, unless it is already there."""
        if gradient is not self.view:
            self.library.assign(self.view, gradient)

    def zero(self) -> None:
        """Sets the gradient to zeros."""
        if self.memory is not None:
            self.memory.fill(0)
        elif self.library.name == "torch":
            self.view.zero_()
        else:
            self.view.fill(0)

    def result(self) -> Any:
        """Returns the reduced gradient: `view`, or a new array if arrays are immutable."""
        return self.view if self.library.mutable else self.library.finished(self.view.copy(), self.view)
