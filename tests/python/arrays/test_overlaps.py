"""Overlaps of arrays are found exactly where that is cheap, and no overlap is ever missed."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import pytest

import pycollective as pc
from pycollective.arrays import overlaps
from pycollective.arrays.numpy_arrays import NumpyArrays
from pycollective.arrays.overlaps import Layout, overlap_in, overlaps_itself

BLOCK = 1 << 28  # bytes, which are never accessed


def bytes_of(layout: Layout) -> list[int]:
    places = [layout.address]
    for length, stride in zip(layout.shape, layout.strides, strict=True):
        places = [place + step * stride for place in places for step in range(length)]
    return [place + each for place in places for each in range(layout.itemsize)]


def some_layout(random: Random) -> Layout:
    axes = random.randrange(4)
    shape = tuple(random.choice((0, 1, 2, 3, 4)) if random.random() < 0.9 else 0 for _ in range(axes))
    strides = tuple(random.randrange(-12, 13) for _ in range(axes))
    return Layout(random.randrange(60), shape, strides, random.choice((1, 2, 4)))


def test_answers_are_those_of_a_count_of_all_bytes() -> None:
    random = Random(3)
    apart = within = 0
    for _ in range(3000):
        layouts = [some_layout(random) for _ in range(random.randrange(1, 4))]
        every = [bytes_of(each) for each in layouts]
        for layout, places in zip(layouts, every, strict=True):
            assert overlaps_itself(layout) == (len(set(places)) < len(places)), layout
        sharing = {
            (one, other)
            for other in range(len(layouts))
            for one in range(other)
            if not set(every[one]).isdisjoint(every[other])
        }
        found = overlap_in(layouts)
        assert (found is not None) == bool(sharing), layouts
        if found is not None:
            assert found.is_certain
            assert (found.one, found.other) in sharing, layouts
        spans = sorted(each.span for each in layouts if 0 not in each.shape)
        within += any(begin < end for (_, end), (begin, _) in itertools.pairwise(spans)) and not sharing
        apart += not sharing
    assert apart > 100
    assert within > 50


def test_large_arrays_are_judged_without_a_look_at_each_element(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_look(*_: object) -> Any:
        raise AssertionError("the elements were counted")

    block = Layout(1 << 40, (BLOCK // 4,), (4,), 4)
    sparse = Layout(1 << 40, (BLOCK // 8,), (8,), 4)
    between = sparse._replace(address=(1 << 40) + 4)
    overlap = overlap_in([block, block._replace(address=(1 << 40) + BLOCK - 4), block])
    assert (overlap and overlap[:2]) == (0, 2)
    overlap = overlap_in([sparse._replace(address=0), sparse, block._replace(address=(1 << 40) + 64)])
    assert (overlap and overlap.words) == "may share memory, and have too many gaps to tell"
    monkeypatch.setattr(overlaps, "_starts", no_look)
    for same in (block, sparse):
        assert overlap_in([same] * 8) == (0, 1, True)
    assert overlap_in([sparse, between]) is None
    assert overlaps_itself(sparse._replace(strides=(0,)))
    assert not overlaps_itself(sparse)


def column(matrix: Any, *places: int) -> Sequence[Any]:
    return [matrix[:, place] for place in places]


def test_columns_of_a_matrix_are_a_list_of_arrays(world_of_one: pc.Group) -> None:
    matrix = np.arange(12.0).reshape(3, 4)
    assert [each.tolist() for each in pc.allreduce(column(matrix, 0, 1, 3))] == [
        [0, 4, 8],
        [1, 5, 9],
        [3, 7, 11],
    ]
    with pytest.raises(pc.InvalidArgument, match=r"x\[1\] and x\[2\] share memory"):
        pc.allreduce(column(matrix, 0, 1, 1))
    with pc.coalesce() as calls:
        calls.allreduce(matrix[:, 0])
        calls.allreduce(matrix[:, 1])
        with pytest.raises(pc.InvalidArgument, match="shares memory"):
            calls.allreduce(matrix[1])


def test_woven_elements_share_nothing_and_are_written(world_of_one: pc.Group) -> None:
    woven = np.lib.stride_tricks.as_strided(np.arange(8.0), (2, 3), (24, 16))
    assert NumpyArrays().why_not_written(woven) == ""
    assert pc.allreduce(woven).tolist() == [[0, 2, 4], [3, 5, 7]]
