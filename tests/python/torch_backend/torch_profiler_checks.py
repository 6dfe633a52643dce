"""What every rank does in test_torch_backend: calls under torch.profiler.

torch_backend_checks.py runs these, too.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import ReduceOp
from torch_backend_checking import check, here, own, uneven

import pycollective as pc


def spans_of(profile: torch.profiler.profile) -> list[Any]:
    """Returns the backend's spans, in the order in which they began."""
    spans = [each for each in profile.events() if each.name.startswith("pycollective:")]
    return sorted(spans, key=lambda each: each.time_range.start)


@check
def a_profiler_shows_every_call_with_its_shapes() -> None:
    rank, size = here()
    peer, x, parts = rank ^ 1, own(), [own() for _ in range(size)]
    calls: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: dist.all_reduce(x),
        "broadcast": lambda: dist.broadcast(x, 0),
        "all_gather": lambda: dist.all_gather(parts, x),
        "reduce_scatter": lambda: dist.reduce_scatter(x, parts),
        "barrier": dist.barrier,
    }
    if max(rank, peer) < size:
        calls["send" if rank < peer else "recv"] = lambda: (dist.send if rank < peer else dist.recv)(x, peer)
    with torch.profiler.profile(record_shapes=True) as profile:
        for call in calls.values():
            call()
        work = dist.all_reduce(x, async_op=True)
        work.wait()
    spans = spans_of(profile)
    for one, other in itertools.pairwise(spans):
        assert one.time_range.end <= other.time_range.start, "each call ends before the next begins"
    names = [each.name.removeprefix("pycollective:") for each in spans]
    assert sorted(names) == sorted([*calls, "all_reduce"]), names
    for each in spans:
        assert each.is_async, each
        assert each.time_range.elapsed_us() > 0, each
        shape = {"barrier": [], "reduce_scatter": [[6 * size]]}.get(each.name.partition(":")[2], [[2, 3]])
        assert each.input_shapes == shape, each


@check
def a_failed_call_ends_in_a_trace() -> None:
    with torch.profiler.profile() as profile:
        with pytest.raises(pc.CollectiveError):
            dist.all_reduce(torch.ones(3, dtype=torch.bool), ReduceOp.AVG)
        dist.barrier()
        with pytest.raises(pc.CollectiveMismatch):
            dist.all_reduce(uneven())
        dist.barrier()
    spans = spans_of(profile)
    assert [each.name.partition(":")[2] for each in spans] == ["all_reduce", "barrier"] * 2
    for one, other in itertools.pairwise(spans):
        assert one.time_range.end <= other.time_range.start
