"""Every call takes arrays of any library and memory layout, one or many of them, and numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pycollective as pc
from pycollective import debug, testing
from pycollective.arrays.numpy_arrays import NumpyArrays

torch = pytest.importorskip("torch")

LIBRARIES: list[Callable[[Any], Any]] = [np.asarray, torch.from_numpy, jnp.asarray]
SHAPE = (6, 4)


def numbered(rank: int, shape: tuple[int, ...] = SHAPE) -> Any:
    return (np.arange(np.prod(shape, dtype=int), dtype=np.float32) + 100 * rank).reshape(shape)


def everything_mixed() -> None:
    """Rank 0 has NumPy arrays, rank 1 torch tensors, rank 2 JAX arrays, and so on."""
    rank, size = pc.rank(), pc.size()
    mine = LIBRARIES[rank % 3]
    all_numbers = [numbered(r) for r in range(size)]
    total = sum(all_numbers)

    def x() -> Any:
        return mine(numbered(rank))

    def same(got: Any, want: Any) -> None:
        assert type(got) is type(x()), type(got)
        np.testing.assert_array_equal(np.asarray(got), want)

    same(pc.allreduce(x()), total)
    same(pc.broadcast(x(), root=size - 1), all_numbers[-1])
    same(pc.reduce(x(), root=0), total if rank == 0 else numbered(rank))
    same(pc.scan(x()), sum(all_numbers[: rank + 1]))
    same(pc.exscan(x()), sum(all_numbers[:rank]) if rank else numbered(0))
    same(pc.allgather(x()), np.concatenate(all_numbers))
    same(pc.allgather(x(), axis=1), np.concatenate(all_numbers, axis=1))
    even = numbered(rank, (2 * size, 3))
    half = sum(numbered(r, (2 * size, 3)) for r in range(size))
    same(pc.reduce_scatter(mine(even)), half[2 * rank : 2 * rank + 2])
    same(
        pc.alltoall(mine(even)),
        np.concatenate([numbered(r, (2 * size, 3))[2 * rank : 2 * rank + 2] for r in range(size)]),
    )
    gathered = pc.gather(x(), root=size - 1)
    if rank == size - 1:
        same(gathered, np.concatenate(all_numbers))
    else:
        assert gathered is None
    got = pc.scatter(mine(even) if rank == 0 else None)
    np.testing.assert_array_equal(np.asarray(got), numbered(0, (2 * size, 3))[2 * rank : 2 * rank + 2])
    assert type(got) is np.ndarray  # the library of the root
    if size > 1 and rank < 2:
        if rank == 0:
            pc.send(x(), 1)
        else:
            same(pc.recv(x(), 0), numbered(0))


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_ranks_of_different_libraries_take_part_in_every_call(n: int) -> None:
    testing.run(everything_mixed, n)


def numbers_and_lists() -> None:
    rank, size = pc.rank(), pc.size()
    assert pc.allreduce(1.5) == 1.5 * size
    assert type(pc.allreduce(2)) is int
    assert pc.allreduce(rank == 0) == 1  # a bool counts as a number
    assert pc.allreduce(rank == 0, "lor") is True
    assert pc.allreduce(np.float32(2)).dtype == np.float32
    assert pc.allreduce([1, 2.5]) == [size, 2.5 * size]
    assert pc.allreduce((1, 2), "max") == (1, 2)
    assert pc.broadcast(rank, root=size - 1) == size - 1
    assert pc.allreduce([float(rank), rank], "maxloc") == [size - 1, size - 1]
    assert pc.allgather(rank).tolist() == list(range(size))
    assert pc.allgather([rank, 7]).tolist() == [each for r in range(size) for each in (r, 7)]
    # Lists: arrays of several types and libraries, nested, some not contiguous, one of them empty.
    arrays = {
        "b": [np.ones(3), torch.ones(2, 2).T, np.ones((4, 2), np.float32)[:, 1]],
        "a": (jnp.ones(2), np.ones(0)),
        "c": np.full(1, rank, np.int64),
    }
    got = pc.allreduce(arrays)
    assert got is not arrays  # it holds a read-only array
    assert got["b"][0] is arrays["b"][0]
    assert (arrays["b"][0] == size).all()
    assert (arrays["b"][1] == size).all()
    assert (arrays["b"][2] == size).all()
    assert (np.asarray(got["a"][0]) == size).all()
    assert (np.asarray(arrays["a"][0]) == 1).all()
    assert got["c"][0] == size * (size - 1) // 2
    arrays = [np.full(2, rank), np.full((2, 2), rank + 0.5)]
    assert pc.broadcast(arrays, root=size - 1) is arrays
    assert arrays[1][1, 1] == size - 0.5
    assert pc.allreduce([]) == []
    assert pc.reduce([np.ones(2)], root=0)[0].tolist() == ([size] * 2 if rank == 0 else [1, 1])
    if size > 1:
        if rank == 0:
            pc.send([np.ones(2), np.arange(3)], 1)
        elif rank == 1:
            ones, numbers = pc.recv([np.zeros(2), np.zeros(3, int)], 0)
            assert (ones.tolist(), numbers.tolist()) == ([1, 1], [0, 1, 2])


@pytest.mark.parametrize("n", [1, 2, 3])
def test_numbers_and_lists_of_arrays_take_part(n: int) -> None:
    testing.run(numbers_and_lists, n)


def lists_with_large_arrays() -> None:
    rank, size = pc.rank(), pc.size()
    count = 1 << 18  # 1 MiB: such lists are sent without packing
    calls = debug.dump()["calls"][-1]["sequence"] if size > 1 else 0
    lying = [
        np.full(count, rank, np.float32),
        np.full((count, 2), rank, np.float32)[:, 0],
        jnp.full(count, rank, jnp.float32),
    ]
    arrays = [np.full(count - 1, rank, np.float32), lying[rank % 3], np.full(3, rank, np.float32)]
    memory = arrays[1]
    got = pc.allreduce(arrays)
    if size > 1:
        assert debug.dump()["calls"][-1]["sequence"] == calls + 1
    for x in got:
        assert (np.asarray(x) == sum(range(size))).all()
    assert (got[1] is memory) == (rank % 3 != 2)
    many = [np.full(count - 1 - i, rank, np.float32) for i in range(9)]
    pc.allreduce([many[:5], {"rest": many[5:]}])
    if size > 1:
        assert debug.dump()["calls"][-1]["sequence"] == calls + 2
    for x in many:
        assert (x == sum(range(size))).all()
    if size > 1 and rank == 0:
        pc.send(got, 1)
    elif size > 1 and rank == 1:
        for x in pc.recv([np.zeros(np.shape(x), np.float32) for x in got], 0):
            assert (x == sum(range(size))).all()


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_large_arrays_of_a_list_travel_in_one_call_however_they_lie(n: int) -> None:
    testing.run(lists_with_large_arrays, n)


class Pair(NamedTuple):
    a: float
    b: float


def odd_lists() -> None:
    rank, size = pc.rank(), pc.size()
    # The same immutable array at two positions has two results.
    same = jnp.full(2, rank, jnp.float32)
    mine = [np.full(2, 1, np.float32), np.full(2, 2, np.float32)] if rank == 0 else [same, same]
    got = pc.broadcast(mine, root=0)
    assert [np.asarray(x).tolist() for x in got] == [[1, 1], [2, 2]]
    assert pc.allreduce(Pair(1.0, 2.0)) == Pair(1.0 * size, 2.0 * size)
    # What cannot be right is refused before anything is sent, wherever it is in the list.
    masked = np.ma.masked_array([1.0, 999.0], [False, True])
    first, last = np.ones(2, np.float32), np.ones(2)
    rows: list[tuple[Callable[[], Any], str]] = [
        (lambda: pc.allreduce([first, masked]), r"x\[1\].*mask"),
        (lambda: pc.send([first, masked], 1 - rank), r"x\[1\].*mask"),
        (lambda: pc.allreduce(masked, reproducible="world"), "mask"),
        (lambda: pc.allgather(masked, counts="auto"), "mask"),
        (lambda: pc.alltoall(masked, counts=[1, 1]), "mask"),
        (lambda: pc.scatter(masked, root=rank), "mask"),
        (lambda: pc.allreduce([last, np.ones(2, np.int64)], "avg"), r"x\[1\].*int64"),
        (lambda: pc.allreduce([first, np.array([object()])]), r"x\[1\]"),
        (lambda: pc.allreduce([2**63, -1]), "64 bits"),
    ]
    for call, why in rows if size == 2 else []:
        with pytest.raises((pc.InvalidArgument, pc.Unsupported), match=why):
            call()
        assert first.tolist() == [1, 1]
        assert last.tolist() == [1, 1]
    assert pc.allreduce(1) == size  # the ranks are in step


@pytest.mark.parametrize("n", [1, 2])
def test_what_is_odd_in_a_list_is_right_or_refused_before_anything_is_sent(n: int) -> None:
    testing.run(odd_lists, n)


def tied_weights() -> None:
    rank, size = pc.rank(), pc.size()
    model = torch.nn.ModuleDict(
        {"embedding": torch.nn.Embedding(5, 3), "head": torch.nn.Linear(3, 5, bias=False)}
    )
    model["head"].weight = model["embedding"].weight
    with torch.no_grad():
        model["head"].weight.fill_(rank)
    pc.broadcast(model.state_dict(), root=size - 1)
    assert (model["embedding"].weight == size - 1).all()
    with torch.no_grad():
        model["head"].weight.fill_(rank)
    pc.broadcast_async(list(model.state_dict().values()), root=0).wait()
    assert (model["head"].weight == 0).all()
    x, y = np.full(6, rank, np.float32), np.full(2, rank)
    if size > 1 and rank < 2:
        got = pc.send([x, y, x], 1) if rank == 0 else pc.recv([x, y, x], 0)
        assert [each.tolist() for each in got] == [[0] * 6, [0] * 2, [0] * 6]
    # Where it would be wrong, each rank raises, the root too, and none is left waiting.
    for overlapping in ([x[:4], x[2:]], [x.reshape(2, 3), x]):
        with pytest.raises(
            pc.InvalidArgument, match=r"x\[0\] and x\[1\] share memory: one would be written over"
        ):
            pc.broadcast(overlapping)
        with pytest.raises(
            pc.InvalidArgument, match=r"x\[0\] and x\[1\] share memory: one would be written over"
        ):
            pc.broadcast_async(overlapping)
    assert pc.allreduce(1) == size


@pytest.mark.parametrize("n", [1, 2, 3])
def test_tied_weights_are_moved_once_and_other_overlaps_are_refused_on_every_rank(n: int) -> None:
    testing.run(tied_weights, n)


def tied_on_the_root_alone() -> None:
    x = np.ones(6, np.float32)
    pc.broadcast([x, x if pc.rank() == 0 else x.copy()])


def test_weights_that_are_tied_on_some_ranks_alone_are_a_mismatch() -> None:
    with pytest.raises(testing.WorldFailed) as failed:
        testing.run(tied_on_the_root_alone, 2)
    words = r"one array under two names must be so on all ranks; this rank's is x\[0\] float32\[6\], x\[1\]"
    assert re.search(words, failed.value.errors[1].details)


def differing_lists() -> list[str]:
    rank = pc.rank()
    said = []
    for arrays in (
        [np.ones(3 + rank), np.ones(5 - rank)],  # as many elements in all
        [np.ones(4)] if rank else [np.ones(2), np.ones(2)],
        [np.ones(4)] if rank else [],
    ):
        try:
            pc.allreduce(arrays)
        except pc.CollectiveMismatch as error:
            said.append(str(error))
    assert pc.allreduce([np.ones(2)])[0].tolist() == [2.0, 2.0]
    return said


def test_lists_that_differ_are_a_mismatch_even_with_as_many_elements() -> None:
    for said in testing.run(differing_lists, 2):
        assert len(said) == 3
        assert "list" in said[0]


# ---- any shape, axis, cut and memory layout


def layouts(shape: tuple[int, ...], which: int) -> Any:
    """Returns zeros of that shape, in one of several memory layouts."""
    match which:
        case 0:
            return np.zeros(shape, np.int32)
        case 1:
            return np.zeros(shape[::-1], np.int32).T
        case 2:
            return np.zeros((*shape, 2), np.int32)[..., 1]
        case 3:
            return np.zeros(shape, np.int32)[::-1]
        case 4:
            return np.zeros((shape[0] * 2, *shape[1:]), np.int32)[::2]
    return torch.zeros((*shape[:-1], shape[-1] + 1), dtype=torch.int32)[..., 1:]


def filled(rank: int, shape: tuple[int, ...], which: int) -> tuple[Any, Any]:
    x = layouts(shape, which)
    plain = np.arange(np.prod(shape, dtype=int), dtype=np.int32).reshape(shape) * 3 + rank
    x[...] = torch.from_numpy(plain) if isinstance(x, torch.Tensor) else plain
    return x, plain


@settings(
    max_examples=60, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
@given(
    shape=st.lists(st.integers(0, 5), min_size=1, max_size=3).map(tuple),
    axis=st.integers(0, 2),
    which=st.integers(0, 5),
    lengths=st.lists(st.integers(0, 4), min_size=9, max_size=9),
)
def any_array(shape: tuple[int, ...], axis: int, which: int, lengths: list[int]) -> None:
    rank, size = pc.rank(), pc.size()
    axis %= len(shape)

    def cut(r: int, length: int) -> tuple[int, ...]:
        return (*shape[:axis], length, *shape[axis + 1 :])

    def part(r: int) -> Any:
        return filled(r, cut(r, lengths[r]), which)[1]

    # allgather and gather of uneven parts
    mine, plain = filled(rank, cut(rank, lengths[rank]), which)
    for counts in (lengths[:size], "auto"):
        joined = np.concatenate([part(r) for r in range(size)], axis=axis)
        np.testing.assert_array_equal(np.asarray(pc.allgather(mine, counts=counts, axis=axis)), joined)
        np.testing.assert_array_equal(np.asarray(mine), plain)
    got = pc.gather(mine, root=size - 1, counts=lengths[:size], axis=axis)
    if rank == size - 1:
        np.testing.assert_array_equal(np.asarray(got), joined)
    # reduce_scatter and scatter of an array that is cut in the same way
    whole, plain = filled(rank, cut(rank, sum(lengths[:size])), which)
    total = sum(filled(r, cut(r, sum(lengths[:size])), which)[1] for r in range(size))
    begin = sum(lengths[:rank])
    place = (slice(None),) * axis + (slice(begin, begin + lengths[rank]),)
    got = pc.reduce_scatter(whole, counts=lengths[:size], axis=axis)
    np.testing.assert_array_equal(np.asarray(got), total[place])
    got = pc.scatter(whole if rank == 0 else None, counts=lengths[:size], axis=axis)
    np.testing.assert_array_equal(np.asarray(got), filled(0, cut(0, sum(lengths[:size])), which)[1][place])
    # alltoall
    between = [[lengths[(3 * i + j) % 9] for j in range(size)] for i in range(size)]
    sent, plain = filled(rank, cut(rank, sum(between[rank])), which)
    pieces = []
    for r in range(size):
        theirs = filled(r, cut(r, sum(between[r])), which)[1]
        begin = sum(between[r][:rank])
        pieces.append(theirs[(slice(None),) * axis + (slice(begin, begin + between[r][rank]),)])
    got = pc.alltoall(sent, counts=between[rank], axis=axis)
    np.testing.assert_array_equal(np.asarray(got), np.concatenate(pieces, axis=axis))
    # in place on arrays that are not contiguous
    pc.allreduce(whole)
    np.testing.assert_array_equal(np.asarray(whole), total)


def all_arrays() -> None:
    any_array()


@pytest.mark.parametrize("n", [1, 2, 3])
def test_any_shape_axis_cut_and_layout_is_right(n: int) -> None:
    testing.run(all_arrays, n, timeout_s=100)


def what_lies_between() -> None:
    """A result written into a strided array preserves the gaps between its elements."""
    for x in (np.full((3, 4), 7.0), torch.full((3, 4), 7.0)):
        column = x[:, 1]
        column[...] = pc.rank()
        assert pc.allreduce(column) is column
        assert (np.asarray(x)[:, [0, 2, 3]] == 7).all()
        assert (np.asarray(column) == pc.size() * (pc.size() - 1) / 2).all()
        out = x[:, 3]
        assert pc.allreduce(column, "max", out=out) is out
        assert (np.asarray(x)[:, [0, 2]] == 7).all()
        assert (np.asarray(out) == np.asarray(column)).all()


def test_what_lies_between_the_elements_of_a_strided_array_is_untouched() -> None:
    testing.run(what_lies_between, 2)


def refused() -> list[str]:
    said = []
    size = pc.size()
    calls: list[Callable[[], object]] = [
        lambda: pc.allgather(np.ones(3), counts=[3]),
        lambda: pc.allgather(np.ones(3), counts=[4] * size),
        lambda: pc.allgather(np.ones(3), axis=1),
        lambda: pc.allgather(np.ones(3), counts="all"),
        lambda: pc.allgather(np.ones(3), out=np.ones(3)),
        lambda: pc.allgather(np.ones(3), out=np.ones(3 * size, int)),
        lambda: pc.reduce_scatter(np.ones(size + 1)),
        lambda: pc.reduce_scatter(np.array(1.0)),
        lambda: pc.reduce_scatter(np.ones(4), counts=[4] * size),
        lambda: pc.alltoall(np.ones(size), recv_counts=[1] * size),
        lambda: pc.alltoall(np.ones(size), counts="auto"),
        lambda: pc.scan(np.ones(3), "avg"),
        lambda: pc.scatter(np.ones(size), out=np.ones(1), counts="auto"),
        lambda: pc.allreduce([np.ones(2)], out=[np.ones(2)]),
        lambda: pc.allreduce([np.ones(3), np.ones(5)], "minloc"),
        lambda: pc.allreduce(np.ones(8)[::2], "maxloc"),
        lambda: pc.reduce_scatter(np.ones((2, 2)), "minloc", axis=1),
    ]
    for call in calls:
        try:
            call()
        except (pc.InvalidArgument, pc.Unsupported) as error:
            said.append(str(error))
        else:
            said.append("")
    pc.barrier()
    return said


def test_what_cannot_be_right_is_refused_before_anything_is_sent() -> None:
    words = [
        "counts=.* is not a list of 2 lengths",
        "x has length 3 along axis 0, and counts says 4",
        "axis 1 is none of an array of shape",
        "counts is 'all'",
        r"out has shape \(3,\), but the result \(6,\)",
        "out has dtype int64, but x has float64",
        "cannot be cut into 2 equal parts along axis 0",
        "no axis to cut",
        "counts add up to 8",
        "recv_counts needs counts",
        "only this rank knows it",
        "avg is over all ranks, and scan over some",
        'counts="auto" is for calls without out=',
        "out= is for one array, not for a list",
        r"x\[0\] of shape \(3,\) has no pairs",
        r"x of shape \(4,\) has no pairs",
        "axis 1 holds the pairs",
    ]
    for said in testing.run(refused, 2):
        for text, pattern in zip(said, words, strict=True):
            assert re.search(pattern, text), (pattern, text)


@pytest.mark.timeout(60)
def test_how_the_arrays_of_a_list_lie_is_asked_once(
    world_of_one: pc.Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    is_block = NumpyArrays.is_block
    monkeypatch.setattr(NumpyArrays, "is_block", lambda self, x: (asked.append(id(x)), is_block(self, x))[1])
    x, y = np.arange(3.0), np.arange(8.0)[::2]
    arrays = {"x": x, "more": [y]}
    for call in (world_of_one.allreduce, world_of_one.broadcast):
        asked.clear()
        assert call(arrays) is arrays
        assert sorted(asked) == sorted((id(x), id(y)))
    assert x.tolist() == [0, 1, 2]
    assert y.tolist() == [0, 2, 4, 6]
