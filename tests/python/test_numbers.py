"""Python's numbers have no dtype: sums and products of ints never wrap, and a bool counts as one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import pycollective as pc
from pycollective import testing

LARGEST = 2**63 - 1


class Counts(NamedTuple):
    right: int
    seen: int


def sums() -> list[Any]:
    """What is exact, and of which type it is."""
    results: list[Any] = [
        pc.allreduce(2**62 - 1),
        pc.allreduce(-(2**62) + 1),
        pc.allreduce([2**61, True, 3]),
        pc.allreduce(Counts(2, 3)),
        pc.allreduce(3_000_000_000, "prod"),
        pc.allreduce(LARGEST, "max"),
        pc.allreduce(2**64 - 1, "min"),
        pc.scan(2**61),
        pc.allreduce(True),
        pc.allreduce([True, False]),
        pc.allreduce(True, "prod"),
        pc.allreduce(True, "max"),
        pc.allreduce(pc.rank() == 0, "land"),
        pc.allreduce(np.True_),
        pc.allreduce(np.int64(2**62)),
        pc.allreduce(True if pc.rank() else 2),
        pc.reduce(True),
        pc.reduce_scatter([True, True]),
        pc.allreduce([True, True], reproducible="world"),
    ]
    return results


def test_what_fits_is_exact_and_a_bool_counts() -> None:
    first, second = testing.run(sums, 2)
    common: list[Any] = [
        2**63 - 2,
        -(2**63) + 2,
        [2**62, 2, 6],
        Counts(4, 6),
        9 * 10**18,
        LARGEST,
        2**64 - 1,
    ]
    assert first[:7] == second[:7] == common
    assert (first[7], second[7]) == (2**61, 2**62)
    counted = [2, [2, 0], 1, True, False, np.True_, np.int64(-(2**63)), 3]
    assert first[8:16] == second[8:16] == counted
    assert [type(each) for each in first[8:16]] == [type(each) for each in counted]
    assert (first[16], second[16]) == (2, True)
    assert first[17] == second[17] == [2]
    assert first[18] == second[18] == 4


CALLS: list[Callable[[], object]] = [
    lambda: pc.allreduce(2**62),
    lambda: pc.allreduce(-(2**62)),
    lambda: pc.allreduce(2**63),
    lambda: pc.allreduce([1, 2**62]),
    lambda: pc.allreduce((1, -(2**63))),
    lambda: pc.allreduce(Counts(1, 2**62)),
    lambda: pc.allreduce(2**32, "prod"),
    lambda: pc.reduce(2**62),
    lambda: pc.reduce(2**62, root=1),
    lambda: pc.scan(2**62),
    lambda: pc.exscan([2**62]),
    lambda: pc.reduce_scatter([2**62, 2**62]),
    lambda: pc.plan_allreduce(2**62)(),
    lambda: pc.allreduce([2**61, 2**61], reproducible="world"),
    lambda: pc.allreduce(2**62, "add", reproducible="shape"),
    lambda: pc.world().allreduce(2**62),
]


def refusals() -> list[str]:
    told = []
    for number, call in enumerate(CALLS):
        try:
            told.append(f"{number}: no error: {call()}")
        except pc.InvalidArgument as error:
            told.append(str(error))
    assert pc.allreduce(1) == pc.size()
    return told


def test_ints_that_would_wrap_are_refused_with_the_way_out() -> None:
    for told in testing.run(refusals, 2):
        for each in told:
            assert "does not fit into 64 bits" in each
            assert "(pc.allgather_object(x)) is exact" in each


def test_alone_the_largest_ints_are_their_own_sum(world_of_one: pc.Group) -> None:
    assert world_of_one.allreduce(LARGEST) == LARGEST
    assert pc.allreduce(2**64 - 1) == 2**64 - 1
    assert pc.allreduce(-(2**63)) == -(2**63)
    counted = pc.allreduce(True)
    assert counted == 1
    assert type(counted) is int


@pytest.mark.skipif(np.dtype(np.longdouble).itemsize <= 8, reason="longdouble is float64 here")
@pytest.mark.parametrize("x", [np.longdouble(1), np.clongdouble(1)])
def test_a_scalar_without_kernels_is_refused_by_the_name_of_its_dtype(x: Any, world_of_one: pc.Group) -> None:
    for call in (world_of_one.allreduce, world_of_one.reduce, world_of_one.scan):
        with pytest.raises(pc.Unsupported, match=f"{x.dtype}, which can be moved but not reduced"):
            call(x)
    assert world_of_one.broadcast(x) == x
