"""Calls in the background on arrays of JAX, which return new arrays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import pytest

import pycollective as pc
from pycollective import testing

Calls = dict[str, tuple[Callable[..., "pc.Work[jnp.ndarray]"], list[float] | None]]


def every_call() -> None:
    rank = pc.rank()
    x = jnp.arange(3.0) + 10 * rank
    sums = [10.0, 12.0, 14.0]
    calls: Calls = {
        "allreduce": (pc.allreduce_async, sums),
        "broadcast": (lambda x: pc.broadcast_async(x, root=1), [10.0, 11.0, 12.0]),
        "reduce": (lambda x: pc.reduce_async(x, root=1), sums if rank == 1 else [0.0, 1.0, 2.0]),
        "scan": (pc.scan_async, sums if rank == 1 else [0.0, 1.0, 2.0]),
        "exscan": (pc.exscan_async, [0.0, 1.0, 2.0] if rank == 1 else None),
        "by keyword": (lambda x: pc.allreduce_async(x=x, op="max"), [10.0, 11.0, 12.0]),
    }
    for name, (call, wanted) in calls.items():
        work = call(x)
        result = work.wait()
        assert isinstance(result, jnp.ndarray), name
        assert work.done(), name
        assert work.wait() is result, name
        assert work.result() is result, name
        assert work.exception() is None
        assert work.info()["state"] == "done", name
        if wanted is not None:
            assert result.tolist() == wanted, name
    assert x.tolist() == [10.0 * rank + each for each in range(3)]


def awaited_beside_a_numpy_array() -> list[float]:
    async def main() -> list[float]:
        x = jnp.ones(4) if pc.rank() == 0 else np.ones(4, np.float32)
        result = await pc.allreduce_async(x)
        return [float(each) for each in result]

    return asyncio.run(main())


def wrong_arguments() -> None:
    x = jnp.ones(3)
    with pytest.raises(pc.InvalidArgument, match="allreduce_async: .* comes as a new array"):
        pc.allreduce_async(x, out=np.ones(3, np.float32))  # type: ignore[call-overload, type-var]
    with pytest.raises(pc.InvalidArgument, match="not an array"):
        pc.allreduce_async(1.0)  # type: ignore[call-overload, type-var]
    assert pc.allreduce(np.ones(1)).tolist() == [pc.size()]


def test_every_call_gives_a_new_array() -> None:
    testing.run(every_call, 2)


def test_the_result_can_be_awaited_and_other_ranks_may_have_other_arrays() -> None:
    assert testing.run(awaited_beside_a_numpy_array, 2) == [[2.0] * 4] * 2


def test_wrong_arguments_leave_the_group_usable() -> None:
    testing.run(wrong_arguments, 2)
