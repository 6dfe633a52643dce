"""Samplers in torch's DataLoader, with workers that prefetch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from arrays import torch

import pycollective as pc

if torch is None:
    pytest.skip("torch is not installed", allow_module_level=True)

from torch.utils.data import BatchSampler as TorchBatchSampler
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on machines of one core
N = 22


class Points(Dataset):  # type: ignore[type-arg]
    def __init__(self) -> None:
        numbers = torch.Generator().manual_seed(1)
        self.x = torch.randn(N, 3, generator=numbers)
        self.y = torch.randn(N, 1, generator=numbers)

    def __len__(self) -> int:
        return N

    def __getitem__(self, sample: int) -> tuple[Any, Any]:
        return self.x[sample], self.y[sample]


class Echo(Dataset):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return N

    def __getitem__(self, sample: int) -> int:
        return sample


def epoch_of(loader: Any) -> list[list[int]]:
    return [batch.tolist() for batch in loader]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_sampler_drops_in(workers: int) -> None:
    for rank in range(2):
        how: Any = {"global_batch_size": 6, "shuffle": True, "rank": rank, "size": 2}
        sampler = pc.data.BatchSampler(Echo(), **how)
        loader = DataLoader(Echo(), batch_sampler=sampler, num_workers=workers)
        plain = pc.data.BatchSampler(N, **how)
        assert len(loader) == 4
        for _ in range(2):  # each iteration of the loader is the next epoch
            assert epoch_of(loader) == list(plain)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sampler_drops_in_for_distributed_sampler(workers: int) -> None:
    sampler = pc.data.Sampler(Echo(), shuffle=True, rank=1, size=2)
    loader = DataLoader(Echo(), batch_size=4, sampler=sampler, num_workers=workers)
    plain = pc.data.Sampler(N, shuffle=True, rank=1, size=2)
    for epoch in (5, 6, 0):
        sampler.set_epoch(epoch)
        plain.set_epoch(epoch)
        expected = list(plain)
        assert epoch_of(loader) == [expected[begin : begin + 4] for begin in range(0, 11, 4)]


def test_a_persistent_worker_goes_through_the_next_epoch_too() -> None:
    sampler = pc.data.BatchSampler(N, global_batch_size=6, shuffle=True, rank=0, size=2)
    plain = pc.data.BatchSampler(N, global_batch_size=6, shuffle=True, rank=0, size=2)
    loader = DataLoader(Echo(), batch_sampler=sampler, num_workers=1, persistent_workers=True)
    for _ in range(3):
        assert epoch_of(loader) == list(plain)


class Run:
    """Trains on two ranks in one process. The gradient is that of the global batch."""

    def __init__(self, workers: int, kind: Any) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Linear(3, 1)
        if kind is pc.data.BatchSampler:
            self.samplers = [kind(N, global_batch_size=6, shuffle=True, rank=r, size=2) for r in range(2)]
            self.loaders = [
                DataLoader(Points(), batch_sampler=each, num_workers=workers) for each in self.samplers
            ]
        else:
            self.samplers = [kind(N, shuffle=True, rank=r, size=2) for r in range(2)]
            self.loaders = [
                DataLoader(Points(), batch_size=3, sampler=each, num_workers=workers)
                for each in self.samplers
            ]

    def steps(self) -> Iterator[dict[str, Any]]:
        """Trains epoch after epoch, and yields the state after each step."""
        while True:
            counted = [s.counting(loader) for s, loader in zip(self.samplers, self.loaders, strict=True)]
            for batches in zip(*counted, strict=True):
                self.model.zero_grad()
                for x, y in batches:
                    (torch.nn.functional.mse_loss(self.model(x), y) / 2).backward()
                with torch.no_grad():
                    for parameter in self.model.parameters():
                        parameter -= 0.1 * parameter.grad
                model = {name: value.clone() for name, value in self.model.state_dict().items()}
                states = [each.state_dict() for each in self.samplers]
                assert states[0] == states[1]
                yield {"model": model, "data": states[0]}

    def load(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        for each in self.samplers:
            each.load_state_dict(state["data"])


@pytest.mark.daily(2)
@pytest.mark.parametrize("kind", [pc.data.BatchSampler, pc.data.Sampler])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_that_is_resumed_within_an_epoch_is_the_same_bit_for_bit(workers: int, kind: Any) -> None:
    total = 11  # with 4 steps per epoch
    weights = []
    for step, state in enumerate(Run(workers, kind).steps(), 1):
        weights.append(state["model"]["weight"])
        if step == total:
            break
    for at in (1, 4, 6):
        run = Run(workers, kind)
        steps = run.steps()
        state = [next(steps) for _ in range(at)][-1]
        assert (state["data"]["epoch"], state["data"]["position"]) == (at // 4, at % 4 * 6)
        steps.close()
        resumed = Run(workers, kind)
        resumed.load(state)
        for step, after in zip(range(at, total), resumed.steps(), strict=False):
            assert torch.equal(after["model"]["weight"], weights[step])


@pytest.mark.parametrize("workers", [0, 2])
def test_without_counting_a_loader_has_no_state(workers: int) -> None:
    sampler = pc.data.BatchSampler(N, global_batch_size=6, rank=0, size=2)
    loader = DataLoader(Echo(), batch_sampler=sampler, num_workers=workers)
    next(iter(loader))
    with pytest.raises(pc.InvalidArgument, match=r"sampler.counting\(loader\)"):
        sampler.state_dict()
    assert sampler.state_dict(done=1)["position"] == 6
    one_by_one = pc.data.Sampler(N, rank=0, size=2)
    next(iter(DataLoader(Echo(), batch_size=3, sampler=one_by_one, num_workers=workers)))
    with pytest.raises(pc.InvalidArgument, match=r"sampler.counting\(loader\)"):
        one_by_one.state_dict()


class Wrapped:
    """A sampler of the program, which wraps one of ours."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler

    def __iter__(self) -> Iterator[Any]:
        yield from self.sampler


@pytest.mark.parametrize("workers", [0, 2])
def test_without_counting_a_loader_has_no_state_through_another_sampler_either(workers: int) -> None:
    sampler = pc.data.BatchSampler(N, global_batch_size=6, rank=0, size=2)
    loader = DataLoader(Echo(), batch_sampler=Wrapped(sampler), num_workers=workers)  # type: ignore[arg-type]
    next(iter(loader))
    with pytest.raises(pc.InvalidArgument, match=r"sampler.counting\(loader\)"):
        sampler.state_dict()
    assert [sampler.state_dict()["position"] for _ in sampler.counting(loader)] == [6, 12, 18, 0]


def test_a_loader_counts_samples_by_its_batches() -> None:
    sampler = pc.data.Sampler(N, rank=0, size=2)
    loaders: list[tuple[int, Any]] = [
        (3, DataLoader(Echo(), batch_size=3, sampler=sampler)),
        (4, DataLoader(Echo(), batch_sampler=TorchBatchSampler(sampler, 4, False))),
        (1, DataLoader(Echo(), batch_size=None, sampler=sampler)),
        (5, DataLoader(Echo(), batch_size=5, sampler=sampler, drop_last=True)),
    ]
    for epoch, (batch, loader) in enumerate(loaders):
        positions = [sampler.state_dict()["position"] for _ in sampler.counting(loader)]
        whole = list(range(2 * batch, N, 2 * batch))
        assert positions == (whole if batch == 5 else [*whole, 0])
        assert (sampler.state_dict()["epoch"], sampler.state_dict()["position"]) == (epoch + 1, 0)


def test_a_loader_that_does_not_draw_from_it_is_refused() -> None:
    sampler = pc.data.BatchSampler(N, global_batch_size=6, rank=0, size=2)
    with pytest.raises(pc.InvalidArgument, match="does not draw"):
        next(sampler.counting(DataLoader(Echo(), batch_size=3)))


class Lines(IterableDataset):  # type: ignore[type-arg]
    """The example of docs/data.md."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        share = {"rank": worker * self.size + self.rank, "size": self.size * workers}
        return pc.data.shard(range(N), uneven="exact", **share)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_is_shared_by_ranks_and_workers(workers: int) -> None:
    got = [list(DataLoader(Lines(rank, 2), batch_size=None, num_workers=workers)) for rank in range(2)]
    assert sorted(got[0] + got[1]) == list(range(N))
    assert got[1] == list(range(1, N, 2))  # in the order of the stream, as without workers


def test_shared_arrays_become_tensors_sample_by_sample() -> None:
    data = pc.data.shared(lambda: np.arange(12.0).reshape(4, 3))
    assert torch.tensor(data[1]).tolist() == [3, 4, 5]
    assert torch.from_numpy(data[[0, 2]]).tolist() == [[0, 1, 2], [6, 7, 8]]  # a list of indices makes a copy


def test_gathered_tensors_are_tensors() -> None:
    pc.init()
    try:
        sampler = pc.data.BatchSampler(N, global_batch_size=6, shuffle=True)
        loader = DataLoader(Echo(), batch_sampler=sampler)
        found = torch.cat(list(loader))
        whole = pc.data.gather({"twice": found * 2, "half": found.bfloat16() / 2}, sampler)
        assert torch.equal(whole["twice"], torch.arange(N) * 2)
        assert torch.equal(whole["half"], torch.arange(N).bfloat16() / 2)
    finally:
        pc.shutdown()


def test_batches_of_a_loader_are_cut_as_they_are_collated() -> None:
    batches = list(pc.data.scatter(DataLoader(Points(), batch_size=5)))
    assert [[tuple(each.shape) for each in batch] for batch in batches] == [[(5, 3), (5, 1)]] * 4 + [
        [(2, 3), (2, 1)]
    ]
