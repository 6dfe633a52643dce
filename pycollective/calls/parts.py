"""Calls on an array that is divided among the ranks.

Parts may have different lengths, along any axis, and arrays need not be contiguous.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pycollective.arrays.library import Library, Shape
from pycollective.base.clock import Clock
from pycollective.calls.blocks import block_of, unfilled, writable_for
from pycollective.calls.scratch import Scratch
from pycollective.errors import InvalidArgument

if TYPE_CHECKING:
    from pycollective._core import Group

__all__ = ["Counts", "Parts", "cut", "row_of", "whole_of"]

Counts = Sequence[int] | Literal["auto"] | None


class Parts:
    """This rank's side of one call on an array that is divided among the ranks."""

    def __init__(self, name: str, group: Group, axis: int, timeout: float | None) -> None:
        self.name, self.group, self.clock = name, group, Clock(timeout)
        self._axis = axis
        self.axis = 0

    def refuse(self, what: str) -> InvalidArgument:
        return InvalidArgument(f"{self.name}: {what}")

    def front(self, library: Library, x: Any) -> Any:
        """Return `x` with the axis of the parts moved to the front."""
        shape = library.shape(x)
        ndim = max(1, len(shape))
        self.axis = operator.index(self._axis)
        if not -ndim <= self.axis < ndim:
            raise self.refuse(f"axis {self._axis} is none of an array of shape {shape}")
        self.axis %= ndim
        return x if self.axis == 0 else library.moved(x, self.axis, 0)

    def back(self, library: Library, x: Any) -> Any:
        return x if self.axis == 0 else library.moved(x, 0, self.axis)

    def listed(self, counts: Any, name: str = "counts") -> list[int]:
        if isinstance(counts, str):
            raise self.refuse(f'{name} is {counts!r}: give a list of lengths, one for each rank, or "auto"')
        lengths = [operator.index(count) for count in counts]
        if len(lengths) != self.group.size or any(length < 0 for length in lengths):
            raise self.refuse(
                f"{name}={counts!r:.80} is not a list of {self.group.size} lengths, one for each rank"
            )
        return lengths

    def lengths_of_all(self, mine: int) -> list[int]:
        """Return the lengths of all ranks' parts, which an allgather collects."""
        gathered = self.group.allgather(np.array([mine]), timeout=self.clock.left_s())
        return [int(length) for length in gathered]

    def as_equal_as_possible(self, length: int) -> list[int]:
        each, more = divmod(length, self.group.size)
        return [each + (rank < more) for rank in range(self.group.size)]

    def own(self, lengths: list[int], have: int) -> None:
        if lengths[self.group.rank] != have:
            raise self.refuse(
                f"x has length {have} along axis {self.axis}, and counts says {lengths[self.group.rank]} for this rank"
            )

    def run(
        self,
        source: tuple[Library, Any] | None,
        result: tuple[Library, Any, Shape]
        | None,  # library, an array of the element type, the result's shape with the parts' axis first
        out: Any,
        *,
        op: Any = None,
        root: int = 0,
        counts: list[int] | None = None,
        recv_counts: list[int] | None = None,
        row: int = 1,
        fixed_order: bool = False,
    ) -> Any:
        """Make the call. Converts row counts to element counts, and arrays to and from blocks."""
        with Scratch() as scratch:
            block_in = None if source is None else block_of(*source, scratch)
            block_out, finish = (
                (None, lambda: None) if result is None else self._target(result, out, block_in, scratch)
            )
            self.group._run(
                self.name,
                block_in,
                block_out,
                op,
                root,
                None if counts is None else [count * row for count in counts],
                None if recv_counts is None else [count * row for count in recv_counts],
                self.clock.left_s(),
                fixed_order,
            )
            return finish()

    def _target(
        self, result: tuple[Library, Any, Shape], out: Any, block_in: Any, scratch: Scratch
    ) -> tuple[Any, Any]:
        library, like, shape = result
        if out is None:
            block = library.empty(like, shape)
            return block, lambda: self._joined(library, block)
        target = writable_for(self.name, "out", out)
        view = self.front(target, out)
        if target.shape(view) != shape or target.dtype(view) != library.dtype(like):
            raise self.refuse(
                f"out is {target.dtype(out)} of shape {target.shape(out)}, but the result {library.dtype(like)} of "
                f"shape {self.back_shape(shape)}"
            )
        if target.is_block(view) and not (self.name == "alltoall" and out is block_in):
            return view, lambda: out
        block = unfilled(target, out, shape, scratch)

        def finish() -> Any:
            target.assign(view, block)
            return out

        return block, finish

    def _joined(self, library: Library, block: Any) -> Any:
        tidy = _tidy(library, self.back(library, block), self.axis)
        return library.finished(tidy, tidy)

    def back_shape(self, shape: Shape) -> Shape:
        rest = list(shape[1:])
        return (*rest[: self.axis], shape[0], *rest[self.axis :])


def _tidy(library: Library, x: Any, axis: int) -> Any:
    """Return a contiguous copy if the axes were moved, else `x`."""
    if axis == 0:
        return x
    block = library.empty(x, library.shape(x))
    library.assign(block, x)
    return block


def row_of(shape: Shape) -> int:
    return int(np.prod(shape[1:], dtype=np.int64))


def whole_of(shape: Shape, length: int) -> Shape:
    return (length, *shape[1:])


def cut(call: Parts, shape: Shape, counts: Counts) -> list[int]:
    """Return the lengths of the parts of an array of that shape."""
    if not shape:
        raise call.refuse("x has no axis to cut: it is a 0-d array")
    if counts is not None:
        lengths = call.as_equal_as_possible(shape[0]) if counts == "auto" else call.listed(counts)
        if sum(lengths) != shape[0]:
            raise call.refuse(
                f"counts add up to {sum(lengths)}, and x has length {shape[0]} along axis {call.axis}"
            )
        return lengths
    if shape[0] % call.group.size:
        raise call.refuse(
            f"x of shape {call.back_shape(shape)} cannot be cut into {call.group.size} equal parts along axis "
            f'{call.axis}: give counts=, a list or "auto"'
        )
    return [shape[0] // call.group.size] * call.group.size
