"""Sums with reproducible bits: on all ranks, in every run, at any index, on any number of ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pycollective as pc
from pycollective import testing
from pycollective.calls.reproducible import Node, nodes_of

DTYPES = (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)


def rough(seed: int, count: int, dtype: Any) -> Any:
    """Returns numbers with a sum that depends on the order of summation."""
    random = np.random.default_rng(seed)
    return (random.standard_normal(count) * 10.0 ** random.integers(-3, 3, count)).astype(dtype)


def bits_everywhere() -> list[bytes]:
    results = []
    for dtype in DTYPES:
        for count in (1, 1000, 70_001):
            results.append(pc.allreduce(rough(pc.rank(), count, dtype)).tobytes())
            results.append(pc.allreduce(rough(pc.rank(), count, dtype), "avg").tobytes())
            results.append(pc.allreduce([rough(pc.rank(), count, dtype)])[0].tobytes())
    return results


@pytest.mark.daily(1)
@pytest.mark.parametrize("n", [2, 3, 5])
def test_all_ranks_have_the_same_bits_and_so_has_the_next_run(n: int) -> None:
    first = testing.run(bits_everywhere, n)
    assert all(each == first[0] for each in first)
    assert testing.run(bits_everywhere, n) == first


def scattered(x: Any, op: str, reproducible: Any, *, even: bool) -> Any:
    """Returns all of reduce_scatter()'s parts, so that an element is found in any part."""
    if not even:
        part = pc.reduce_scatter(x, op, counts="auto", reproducible=reproducible)
        return pc.allgather(part, counts="auto")
    padded = np.concatenate([x, np.zeros(-len(x) % pc.size(), x.dtype)])
    return pc.allgather(pc.reduce_scatter_async(padded, op, reproducible=reproducible).wait())


def calls_that_sum(reproducible: Any) -> dict[str, Callable[[Any], Any]]:
    return {
        "allreduce": lambda x: pc.allreduce(x, reproducible=reproducible),
        "avg": lambda x: pc.allreduce(x, "avg", reproducible=reproducible),
        "reduce": lambda x: pc.reduce(x, root=1, reproducible=reproducible),
        "reduce_scatter": lambda x: scattered(x, "sum", reproducible, even=False),
        "reduce_scatter avg": lambda x: scattered(x, "avg", reproducible, even=False),
        "reduce_scatter equal": lambda x: scattered(x, "sum", reproducible, even=True),
        "scan": lambda x: pc.scan(x, reproducible=reproducible),
        "exscan": lambda x: pc.exscan(x, reproducible=reproducible),
        "list": lambda x: pc.allreduce([np.ones(3, x.dtype), x], reproducible=reproducible)[1],
    }


def one_number_anywhere(reproducible: Any) -> list[tuple[str, str]]:
    """Puts the same numbers of all ranks at many indices of arrays of many sizes.

    Returns where their sums have other bits.
    """
    wrong = []
    for dtype in DTYPES:
        numbers = rough(100 + pc.rank(), 20, dtype)
        for name, call in calls_that_sum(reproducible).items():
            alone = call(numbers.copy())[:20].tobytes()
            for count in (20, 2_000, 9_000, 100_000):
                for place in (0, (count - 20) // 3, count - 20):
                    x = rough(7 * pc.rank() + count, count, dtype)
                    x[place : place + 20] = numbers
                    if call(x)[place : place + 20].tobytes() != alone:
                        wrong.append((name, f"{np.dtype(dtype)} {count} {place}"))
    return wrong


@pytest.mark.daily(1)
@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_by_shape_bits_do_not_depend_on_size_and_place(n: int) -> None:
    for wrong in testing.run(one_number_anywhere, n, "shape"):
        assert not wrong


def test_the_check_of_bits_notices_rings_and_pairs() -> None:
    for reduce_scatter in ("ring", "pairwise"):
        tune = f"allreduce:0-inf:ring;reduce_scatter:0-inf:{reduce_scatter}"
        (wrong, *_) = testing.run(one_number_anywhere, 4, None, env={"PYCOLLECTIVE_TUNE": tune})
        noticed = {name for name, _ in wrong}
        assert noticed >= {"allreduce", "avg", "list", "reduce_scatter", "reduce_scatter equal"}
        assert noticed.isdisjoint({"reduce", "scan", "exscan"}), "nothing asked for another order of these"


def parts_and_whole() -> list[str]:
    wrong = []
    for dtype in DTYPES:
        for count in (1, 1000, 300_001):
            x = rough(pc.rank(), count, dtype)
            for op in ("sum", "avg", "prod"):
                part = pc.reduce_scatter(x, op, counts="auto", reproducible="shape")
                whole = pc.allreduce(x, op, out=np.empty_like(x), reproducible="shape")
                if pc.allgather(part, counts="auto").tobytes() != whole.tobytes():
                    wrong.append(f"{np.dtype(dtype)} {count} {op}")
    return wrong


@pytest.mark.daily(2)
@pytest.mark.parametrize("n", [2, 3, 4, 6, 8])
def test_a_part_of_the_sum_has_the_bits_of_the_whole(n: int) -> None:
    for wrong in testing.run(parts_and_whole, n):
        assert not wrong


def leaves_divided(cuts: list[int], dtype: str, op: str) -> Any:
    every = rough(3, 24 * 33, np.float64).reshape(24, 33)
    mine = every[cuts[pc.rank()] : cuts[pc.rank() + 1]].astype(dtype)
    return pc.allreduce(mine, op, reproducible="world")


@pytest.mark.daily(4)
@pytest.mark.parametrize("op", ["sum", "prod", "min"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_by_world_bits_do_not_depend_on_the_number_of_ranks(dtype: str, op: str) -> None:
    divisions = [
        [0, 24],
        [0, 12, 24],
        [0, 5, 24],
        [0, 7, 8, 24],
        [0, 0, 9, 20, 24],
        [0, 3, 6, 9, 12, 15, 18, 21, 24],
    ]
    results = []
    for cuts in divisions if op == "sum" else divisions[:3]:
        for result in testing.run(leaves_divided, len(cuts) - 1, cuts, dtype, op):
            assert result.shape == (33,)
            results.append(result.tobytes())
    assert len(set(results)) == 1


def test_nodes_cover_every_range_once_and_stand_in_the_tree() -> None:
    for begin in range(20):
        for end in range(begin, 40):
            covered = [
                leaf
                for level, place in nodes_of(begin, end)
                for leaf in range(place << level, (place + 1) << level)
            ]
            assert covered == list(range(begin, end))
    assert nodes_of(1, 8) == [Node(0, 1), Node(1, 1), Node(2, 1)]


def refused() -> None:
    for call, words in (
        (lambda: pc.allreduce(np.ones(2), reproducible="bits"), "reproducible must be"),
        (lambda: pc.allreduce(np.ones(2), "avg", reproducible="world"), "takes op sum"),
        (lambda: pc.allreduce(np.array(1.0), reproducible="world"), "0-d"),
        (lambda: pc.reduce(np.ones(2), reproducible="world"), "is for allreduce"),
        (lambda: pc.reduce_scatter(np.ones(2), reproducible="world"), "reduce_scatter.* is for allreduce"),
        (lambda: pc.reduce_scatter(np.ones(2), reproducible="bits"), "reproducible must be"),
        (lambda: pc.allreduce_async(np.ones(2), reproducible="world"), "without _async"),
        (lambda: pc.reduce_scatter_async(np.ones(2), reproducible="world"), "call reduce_scatter"),
    ):
        with pytest.raises(pc.CollectiveError, match=words):
            call()
    pc.barrier()


def test_what_has_no_meaning_is_refused() -> None:
    testing.run(refused, 2)
