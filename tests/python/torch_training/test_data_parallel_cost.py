"""The cost of a step of DataParallel in calls: many small gradients cost as little as in DDP."""

from __future__ import annotations

import sys
from collections import Counter
from types import FrameType
from typing import Any

import pytest
from arrays import torch

import pycollective as pc

if torch is None:
    pytest.skip("torch is not installed", allow_module_level=True)

from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from pycollective.torch.backend.streams import Followed
from pycollective.torch.data_parallel import DataParallel
from pycollective.training.gradients.reducer import GradientReducer

LAYERS = 200  # each with two parameters


class Counting(TorchDispatchMode):
    """Counts the operations of torch by name."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, operation: Any, types: Any, inputs: Any = (), named: Any = None) -> Any:
        self.counts[operation.overloadpacket.__name__] += 1
        return operation(*inputs, **(named or {}))


def small_layers() -> DataParallel:
    layers = nn.Sequential(*[nn.Linear(2, 2) for _ in range(LAYERS)])
    return DataParallel(layers, bucket_nbytes=3000, first_bucket_nbytes=500)


@pytest.mark.timeout(60)
def test_the_gradients_of_a_bucket_are_copied_at_once(world_of_one: pc.Group) -> None:
    model = small_layers()
    buckets = len(model._hooks._reducer.buckets)
    assert 3 < buckets < 10
    model(torch.ones(1, 2)).sum().backward()
    assert all(each.grad is not None for each in model.parameters())
    model.zero_grad()
    loss = model(torch.ones(1, 2)).sum()
    with Counting() as counting:
        loss.backward()
    assert counting.counts["copy_"] + counting.counts["_foreach_copy_"] <= buckets, counting.counts
    loss = model(torch.ones(1, 2)).sum()
    with Counting() as counting:  # gradients that were not set to None are in their buckets already
        loss.backward()
    assert counting.counts["copy_"] + counting.counts["_foreach_copy_"] == 0, counting.counts


@pytest.mark.timeout(60)
@pytest.mark.parametrize("set_to_none", [True, False])
def test_a_gradient_takes_two_calls_of_python(world_of_one: pc.Group, set_to_none: bool) -> None:
    model = small_layers()
    counts: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            counts[frame.f_code.co_qualname if sys.version_info >= (3, 11) else frame.f_code.co_name] += 1

    for _ in range(2):
        model.zero_grad(set_to_none)
        loss = model(torch.ones(1, 2)).sum()
        counts.clear()
        sys.setprofile(count)
        try:
            loss.backward()
        finally:
            sys.setprofile(None)
    assert counts.total() <= 2 * 2 * LAYERS + 300, counts.most_common(12)


@pytest.mark.timeout(60)
def test_a_step_of_the_reducer_is_one_copy_for_each_bucket_too(world_of_one: pc.Group) -> None:
    gradients = {str(number): torch.full((3,), float(number)) for number in range(100)}
    reducer = GradientReducer(gradients, bucket_nbytes=600, first_bucket_nbytes=600)
    with Counting() as counting:
        reduced = reducer.reduce(gradients)
    assert counting.counts["copy_"] + counting.counts["_foreach_copy_"] == len(reducer.buckets) == 2
    assert all(reduced[name] is reducer.view(name) for name in gradients)
    assert all(torch.equal(reduced[name], gradients[name]) for name in gradients)


@pytest.mark.timeout(60)
def test_buckets_begin_with_a_cache_line(world_of_one: pc.Group) -> None:
    """Memory of NumPy seldom does."""
    for length in (1, 1000, 3 << 20):
        reducer = GradientReducer({"x": torch.ones(length)})
        assert reducer.view("x").data_ptr() % 64 == 0


class FakeStream:
    """Imitates torch's streams on a GPU, and records which waits for which."""

    def __init__(self, number: int, log: list[str]) -> None:
        self.cuda_stream = number
        self._log = log

    def record_event(self) -> str:
        self._log.append(f"event of {self.cuda_stream}")
        return f"event of {self.cuda_stream}"

    def wait_event(self, event: str) -> None:
        self._log.append(f"{self.cuda_stream} waits for {event}")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("gives_number", [True, False])
def test_events_are_recorded_only_where_the_stream_changes(
    monkeypatch: pytest.MonkeyPatch, gives_number: bool
) -> None:
    log: list[str] = []
    streams = [FakeStream(number, log) for number in (7, 8)]
    current = streams[0]
    asked: list[int] = []
    name = "_cuda_getCurrentRawStream"
    if gives_number:
        monkeypatch.setattr(
            torch._C, name, lambda index: (asked.append(index), current.cuda_stream)[1], raising=False
        )
    else:
        monkeypatch.delattr(torch._C, name, raising=False)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: current)
    followed = Followed(torch.device("cuda", 1))
    assert [followed.follow() for _ in range(3)] == [None] * 3
    assert log == []
    current = streams[1]
    assert followed.follow() is current
    assert followed.follow() is None
    assert log == ["event of 7", "8 waits for event of 7"]
    current = streams[0]
    assert followed.follow() is current
    assert log[2:] == ["event of 8", "7 waits for event of 8"]
    assert asked == [1] * len(asked)
