"""Python's numbers have no dtype: sums and products of ints never wrap, and a bool is an int."""

from __future__ import annotations

import contextlib
import copy
import functools
import operator
import re
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest

import pycollective as pc
from pycollective import testing
from pycollective.arrays.exact_ints import from_words, to_words

LARGEST = 2**63 - 1


class Counts(NamedTuple):
    right: int
    seen: int


def sums() -> list[Any]:
    """Returns results that are exact, and have the expected type."""
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
        pc.allreduce(np.True_, "prod"),
        pc.allreduce(np.bool_(pc.rank() == 0), "max"),
        pc.allreduce({"right": np.True_})["right"],
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
    counted = [
        2,
        [2, 0],
        1,
        True,
        False,
        np.int64(2),
        np.int64(1),
        np.True_,
        np.int64(2),
        np.int64(-(2**63)),
        3,
    ]
    assert first[8:19] == second[8:19] == counted
    assert [type(each) for each in first[8:19]] == [type(each) for each in counted]
    assert (first[19], second[19]) == (2, True)
    assert first[20] == second[20] == [2]
    assert first[21] == second[21] == 4


def mine(*by_rank: Any) -> Any:
    """Returns the value of this rank; the last value is that of all further ranks."""
    return by_rank[min(pc.rank(), len(by_rank) - 1)]


# Calls with a result that no rank can judge by its own numbers, and the results of three ranks. A
# tuple has one per rank.
FITTING: list[tuple[Callable[[], Any], Any]] = [
    (lambda: pc.allreduce(mine(2**63 + 5, 0)), 2**63 + 5),
    (lambda: pc.allreduce(mine(2**64 - 1, 0)), 2**64 - 1),
    (lambda: pc.allreduce(mine(2**64 - 1, -(2**63), 7)), 2**63 + 6),
    (lambda: pc.allreduce([mine(2**62, -1, 3), mine(1, -(2**63), 2)]), [2**62 + 2, 3 - 2**63]),
    (lambda: pc.allreduce(mine(2**32, 1), "prod"), 2**32),
    (lambda: pc.allreduce(mine(2**32, 2**31, -1), "prod"), -(2**63)),
    (lambda: pc.allreduce(mine(2**32 - 1, 2**32 + 1, 1), "prod"), 2**64 - 1),
    (lambda: pc.allreduce(mine(2**80, 0, -3), "prod"), 0),
    (lambda: pc.allreduce(mine(2**63, 1), "max"), 2**63),
    (lambda: pc.allreduce(mine(2**70, 4, 5), "min"), 4),
    (lambda: pc.allreduce(mine(1 << 63, 1, 2), "bor"), (1 << 63) + 3),
    (lambda: pc.allreduce(mine(1 << 100, 3, -2), "band"), 0),
    (lambda: pc.allreduce(mine(1 << 100, 0), "lor"), 1),
    (lambda: pc.allreduce(mine(np.int64(4), 5, True)), 10),
    (lambda: pc.allreduce(mine(2**62, 2**61, 0), reproducible="shape"), 2**62 + 2**61),
    (lambda: int(pc.allreduce([mine(2**63, -1), 4], reproducible="world")), 2**63 + 10),
    (lambda: pc.plan_allreduce(mine(2**63, 0))(), 2**63),
    (lambda: int(pc.allreduce(mine(2**63, 3), out=np.zeros((), np.uint64))), 2**63 + 6),
    (lambda: pc.reduce_scatter([mine(2**63, 1)] * 3).tolist(), [2**63 + 2]),
    (lambda: pc.reduce_scatter(mine([1, 2**62], [3, 4]), counts="auto").tolist(), ([7], [2**62 + 8], [])),
    (lambda: pc.reduce(mine(2**63, 1), root=1), (2**63, 2**63 + 2, 1)),
    (lambda: pc.scan(mine(2**63, -1)), (2**63, 2**63 - 1, 2**63 - 2)),
    (lambda: pc.exscan(mine(2**63, -1)), (2**63, 2**63, 2**63 - 1)),
]
NOT_FITTING: list[Callable[[], object]] = [
    lambda: pc.allreduce(mine(2**64 - 1, 1, 0)),
    lambda: pc.allreduce(mine(-(2**63), -1, 0)),
    lambda: pc.allreduce([1, mine(2**64 - 1, 1)]),
    lambda: pc.allreduce(Counts(1, mine(2**64 - 1, 1))),
    lambda: pc.allreduce(mine(2**64, -1)),
    lambda: pc.allreduce(mine(2**200, 0)),
    lambda: pc.allreduce(mine(2**32, 2**32, 1), "prod"),
    lambda: pc.allreduce(mine(2**63 + 1, -1, 1), "prod"),
    lambda: pc.allreduce(mine(2**80, 1), "prod"),
    lambda: pc.allreduce(mine(2**64, 0), "max"),
    lambda: pc.allreduce(mine(2**70, -(2**70), -5), "min"),
    lambda: pc.allreduce(mine(1 << 64, 0), "bxor"),
    lambda: pc.allreduce([mine(2**64 - 1, 1)] * 2, reproducible="world"),
    lambda: pc.plan_allreduce(mine(2**64, 0))(),
    lambda: pc.allreduce(mine(2**62, 2**61), out=np.zeros((), np.int64)),
    lambda: pc.reduce_scatter([mine(2**64, 1)] * 3),
    lambda: pc.world().allreduce(mine(2**64 - 1, 2)),
]


def of_different_ranks() -> tuple[list[str], list[str]]:
    """Returns the wrong results, and the errors of calls that must fail."""
    wrong, errors = [], []
    for number, (call, wanted) in enumerate(FITTING):
        expected = wanted[pc.rank()] if isinstance(wanted, tuple) else wanted
        if (got := call()) != expected:
            wrong.append(f"{number}: {got} instead of {expected}")
    for number, refused in enumerate(NOT_FITTING):
        try:
            wrong.append(f"{number}: no error: {refused()}")
        except pc.InvalidArgument as error:
            errors.append(str(error))
        if pc.allreduce(1) != pc.size():
            wrong.append(f"{number}: the ranks are out of step")
    return wrong, errors


def test_whether_a_result_fits_is_found_by_all_ranks_together() -> None:
    ranks = testing.run(of_different_ranks, 3, timeout_s=60)
    for wrong, errors in ranks:
        assert not wrong
        assert errors == ranks[0][1]
        for error in errors:
            assert re.search(r"does not fit into (64 bits|int64)", error)
            assert re.search(r"pc\.allgather_object\(x\)\) is exact|pc\.allgather_object\(x\) moves", error)


def of_one_rank_only() -> list[str]:
    """Parts and prefixes differ by rank: a rank without a valid result raises after the call."""
    errors = []
    for call in (
        lambda: pc.reduce(2**63, root=1),
        lambda: pc.scan(2**63),
        lambda: pc.reduce_scatter([0, 2**63]),
    ):
        try:
            call()
            errors.append("")
        except pc.InvalidArgument as error:
            errors.append(str(error))
        assert pc.allreduce(1) == pc.size()
    return errors


def test_a_result_of_one_rank_that_does_not_fit_is_an_error_there() -> None:
    first, second = testing.run(of_one_rank_only, 2, timeout_s=60)
    assert first == [""] * 3
    assert all("does not fit into 64 bits" in each for each in second)


def mixed_up() -> None:
    for x in (mine(1, 1.5), mine([1, 2], [1, 2, 3]), mine(1, np.array([1]))):
        with (
            pytest.raises(pc.CollectiveMismatch, match="Python's ints")
            if pc.rank() == 0
            else pytest.raises(pc.CollectiveMismatch)
        ):
            pc.allreduce(x)
        assert pc.allreduce(1) == pc.size()
    with pytest.raises(pc.InvalidArgument, match="out must be int64 or uint64"):
        pc.allreduce(1, out=np.zeros(1))


def test_ints_with_floats_or_arrays_are_a_mismatch() -> None:
    testing.run(mixed_up, 2, timeout_s=60)


def of_a_dict() -> None:
    r, n = pc.rank(), pc.size()
    total = n * (n + 1) // 2
    given = {"loss": 0.5 * (r + 1), "seen": r + 1, "more": {"flag": True, "wide": mine(2**63, 0)}}
    kept = copy.deepcopy(given)
    assert pc.allreduce(given) == {"loss": 0.5 * total, "seen": total, "more": {"flag": n, "wide": 2**63}}
    assert given == kept
    assert list(pc.allreduce({"b": 1.0, "a": 2.0}, "avg").items()) == [("b", 1.0), ("a", 2.0)]
    assert pc.broadcast({"step": r, "lr": 0.1 * r}, root=n - 1) == {"step": n - 1, "lr": 0.1 * (n - 1)}
    assert pc.plan_allreduce({"n": 2})() == {"n": 2 * n}
    assert pc.scan({"n": 1}) == {"n": r + 1}
    assert pc.reduce({"n": 1}, root=0) == {"n": n if r == 0 else 1}
    with pytest.raises(pc.InvalidArgument, match="does not fit into 64 bits"):
        pc.allreduce({"wide": 2**63})
    expected = pytest.raises(pc.InvalidArgument, match="does not fit") if r == 0 else contextlib.nullcontext()
    with expected:
        pc.reduce({"wide": 2**63, "x": np.uint8(1)}, root=0)
    with pytest.raises(pc.CollectiveMismatch, match="this rank's is x"):
        pc.allreduce({"a" if r else "b": 1.0})
    for mixture in ({"n": 1, "x": np.ones(2)}, {"n": 1, "more": [1.0, 2.0]}):
        with pytest.raises(pc.InvalidArgument, match="is a number among arrays"):
            pc.allreduce(mixture)
    with pytest.raises(pc.Unsupported, match="cannot be written"):
        pc.allreduce_async({"n": 1.0})
    assert pc.allreduce(1) == n


@pytest.mark.parametrize("size", [2, 3])
def test_a_dict_of_numbers_is_one_call_that_returns_a_new_dict(size: int) -> None:
    testing.run(of_a_dict, size, timeout_s=60)


OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "sum": operator.add,
    "prod": operator.mul,
    "min": min,
    "max": max,
    "band": operator.and_,
    "bor": operator.or_,
    "bxor": operator.xor,
}


@pytest.mark.parametrize("op", OPERATIONS)
def test_words_combine_as_the_ints_do(op: str) -> None:
    combine = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}
    combine |= {"band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor}
    random = Random(5)
    edges = [0, 1, -1, 2, 3, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**63 - 1, -(2**63), 2**63, 2**64 - 1]
    for count in [1, 2, 2, 3, 3, 5, 64, 300] * 12:
        bits = random.choice((1, 8, 64 // min(count, 64), 64))
        xs = [
            random.choice((random.choice(edges), random.getrandbits(bits) - random.getrandbits(bits)))
            for _ in range(count)
        ]
        exact = functools.reduce(OPERATIONS[op], xs)
        words = functools.reduce(combine[op], [to_words(x, op) for x in xs])
        if -(2**63) <= exact < 2**64 and (op != "sum" or all(-(2**63) <= x < 2**64 for x in xs)):
            assert from_words("f", words, 0, op) == exact, xs
        else:
            with pytest.raises(pc.InvalidArgument, match="does not fit"):
                from_words("f", words, 0, op)


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
