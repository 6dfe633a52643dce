"""Detects by their addresses whether arrays share memory. The memory itself is never read.

An array consists of runs of consecutive bytes. A contiguous array is a single run; a column of a
matrix has one run for each element. Up to MOST_RUNS runs are compared individually. Beyond that,
arrays count as sharing memory unless their strides show that they do not.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Layout", "Overlap", "overlap_in", "overlaps_itself"]

MOST_RUNS = 1 << 20  # comparing this many runs takes about 20 MB


class Layout(NamedTuple):
    """The memory layout of an array: the address of its first element, and its strides in bytes."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int

    @property
    def span(self) -> tuple[int, int]:
        """Return the lowest address of the elements and the address after the highest.

        The array must not be empty.
        """
        begin = end = self.address
        for length, stride in zip(self.shape, self.strides, strict=True):
            if stride < 0:
                begin += (length - 1) * stride
            else:
                end += (length - 1) * stride
        return begin, end + self.itemsize


class Overlap(NamedTuple):
    """Two arrays that share memory: their positions in a list, the earlier one first."""

    one: int
    other: int
    is_certain: bool = True

    @property
    def words(self) -> str:
        """A description for error messages."""
        return "share memory" if self.is_certain else "may share memory, and have too many gaps to tell"


def overlaps_itself(layout: Layout) -> bool:
    """Return whether two elements of the array share memory, or may do so."""
    if _is_nested(layout):
        return False
    axes = _axes(layout)
    if axes[0][0] == 0:
        return True
    _, nbytes, outer = _runs_of(layout)
    if math.prod(length for _, length in outer) > MOST_RUNS:
        return True
    starts = np.sort(_starts(layout))
    return bool((np.diff(starts) < nbytes).any())


def overlap_in(layouts: Sequence[Layout]) -> Overlap | None:
    """Return the positions of two layouts that (may) share memory, or None if all are disjoint.

    This does not detect an array that overlaps itself.
    """
    spans = sorted((*each.span, place) for place, each in enumerate(layouts) if 0 not in each.shape)
    together = [
        Overlap(min(one, other), max(one, other), is_certain=False)
        for (_, end, one), (begin, _, other) in itertools.pairwise(spans)
        if begin < end
    ]
    if not together:
        return None
    places = [place for _, _, place in spans]
    first: dict[Layout, int] = {}
    for place in sorted(places):
        if first.setdefault(layouts[place], place) != place:
            return Overlap(first[layouts[place]], place)
    in_order = [layouts[place] for place in places]
    if _are_in_step(in_order):
        return None
    if sum(math.prod(length for _, length in _runs_of(each)[2]) for each in in_order) > MOST_RUNS:
        return together[0]
    return _exact(layouts, places)


def _exact(layouts: Sequence[Layout], places: Sequence[int]) -> Overlap | None:
    runs = [_starts(layouts[place]) for place in places]
    starts = np.concatenate(runs)
    counts = [len(each) for each in runs]
    owners = np.repeat(places, counts)
    ends = starts + np.repeat([_runs_of(layouts[place])[1] for place in places], counts)
    order = np.argsort(starts, kind="stable")
    starts, owners, ends = starts[order], owners[order], ends[order]
    # The runs are sorted by start. If any two runs of different arrays overlap, two consecutive
    # ones do.
    found = np.flatnonzero((starts[1:] < ends[:-1]) & (owners[1:] != owners[:-1]))
    if not len(found):
        return None
    one, other = sorted((int(owners[found[0]]), int(owners[found[0] + 1])))
    return Overlap(one, other)


def _are_in_step(layouts: Sequence[Layout]) -> bool:
    """Return whether the arrays, sorted by address, are laid out like the columns of one matrix."""
    first = layouts[0]
    steps = {after.address - before.address for before, after in itertools.pairwise(layouts)}
    if len(steps) > 1 or any(each[1:] != first[1:] for each in layouts):
        return False
    matrix = Layout(first.address, (len(layouts), *first.shape), (*steps, *first.strides), first.itemsize)
    return _is_nested(matrix)


def _axes(layout: Layout) -> list[tuple[int, int]]:
    """Return stride and length of each axis that is longer than 1, the smallest stride first."""
    return sorted((abs(s), n) for s, n in zip(layout.strides, layout.shape, strict=True) if n > 1)


def _is_nested(layout: Layout) -> bool:
    """Return whether each axis steps over all the memory that axes with smaller strides span.

    If so, no two elements share memory.
    """
    if 0 in layout.shape:
        return True
    reach = layout.itemsize
    for stride, length in _axes(layout):
        if stride < reach:
            return False
        reach += stride * (length - 1)
    return True


def _runs_of(layout: Layout) -> tuple[int, int, list[tuple[int, int]]]:
    """Return the start of the first run, the bytes per run, and (stride, length) of the other axes.

    The other axes are those that lead from one run to the next.
    """
    nbytes, outer = layout.itemsize, _axes(layout)
    while outer and outer[0][0] == nbytes:
        nbytes *= outer.pop(0)[1]
    return layout.span[0], nbytes, outer


def _starts(layout: Layout) -> npt.NDArray[np.int64]:
    begin, _, outer = _runs_of(layout)
    starts = np.array([begin], np.int64)
    for stride, length in outer:
        starts = (starts[:, None] + stride * np.arange(length)).reshape(-1)
    return starts
