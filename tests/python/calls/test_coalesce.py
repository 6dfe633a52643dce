"""pc.coalesce(): calls that are made together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from arrays import torch

import pycollective as pc
from pycollective import debug, testing


def collectives_made() -> int:
    return sum(call["kind"] == "collective" for call in debug.dump()["calls"])


def many_in_few() -> None:
    rank, size = pc.rank(), pc.size()
    weights = [np.full((i, 3), float(rank)) for i in range(20)]
    count = np.array([rank], np.int64)
    strided = np.full((4, 4), float(rank)).T[::2]
    tensor = torch.full((5,), float(rank)) if torch is not None else np.zeros(5, np.float32)
    given = np.full(3, rank, np.int16)
    before = collectives_made()
    with pc.coalesce() as calls:
        for x in weights:
            assert calls.allreduce(x, "avg") is x
        calls.allreduce(strided, "avg")
        calls.allreduce(count)
        calls.broadcast(given, root=size - 1)
        calls.allreduce(tensor, "avg")
        assert collectives_made() == before
    assert collectives_made() - before <= (
        4 if size > 1 else 0
    )  # avg of float64 and of float32, sum of int64, broadcast
    mean = (size - 1) / 2
    for x in [*weights, strided]:
        assert (x == mean).all()
    assert float(tensor[0]) == (mean if torch is not None else 0)
    assert count == sum(range(size))
    assert (given == size - 1).all()
    with pc.coalesce():
        pass


@pytest.mark.parametrize("n", [1, 2, 3])
def test_calls_of_one_kind_and_dtype_are_one_message(n: int) -> None:
    testing.run(many_in_few, n)


def fails_between(x: Any) -> None:
    with pc.coalesce() as calls:
        calls.allreduce(x)
        raise KeyError


def refusals() -> None:
    import jax.numpy as jnp

    x = np.zeros(6)
    calls = pc.coalesce()
    rows: list[tuple[Any, str]] = [
        (lambda: calls.allreduce(jnp.zeros(3)), "cannot be written"),
        (lambda: calls.allreduce(2.0), "cannot be written"),
        (lambda: calls.broadcast(x[2:4]), "shares memory"),
        (lambda: calls.allreduce(object()), "allreduce: x"),
    ]
    with calls:
        calls.allreduce(x[1:5])
        for call, why in rows:
            with pytest.raises(pc.InvalidArgument, match=why):
                call()
    with pytest.raises(pc.InvalidArgument, match="in its with block only"):
        calls.allreduce(x)
    with pytest.raises(KeyError):
        fails_between(x)
    with pytest.raises(pc.InvalidArgument, match="used"):
        calls.__enter__()
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    with pc.coalesce() as others:
        if pc.rank() == 0:
            others.broadcast(frozen)  # broadcast reads it on the root
        else:
            others.broadcast(np.zeros(3))
        with pytest.raises(pc.InvalidArgument, match="read-only"):
            others.allreduce(frozen)
        with pytest.raises(pc.Unsupported):
            others.allreduce(np.zeros(3, int), "avg")
    pc.barrier()  # nothing was sent: the ranks are in step


def test_what_cannot_be_right_is_refused_and_an_exception_sends_nothing() -> None:
    testing.run(refusals, 2)


def collected(*lengths: int) -> None:
    with pc.coalesce() as calls:
        for length in lengths:
            calls.allreduce(np.zeros(length))


def different() -> None:
    with pytest.raises(pc.CollectiveMismatch):
        collected(3, 2 + pc.rank())
    pc.resync()
    assert pc.allreduce(1) == 2


def test_ranks_that_collect_different_calls_are_reported() -> None:
    testing.run(different, 2)


def of_a_group() -> None:
    pair = pc.group([0, 2])
    if pair is not None:
        x = np.ones(3)
        with pc.coalesce(group=pair) as calls:
            calls.allreduce(x)
        assert x.tolist() == [2, 2, 2]


def test_a_group_coalesces_for_itself() -> None:
    testing.run(of_a_group, 3)
