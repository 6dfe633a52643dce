"""PYCOLLECTIVE_CHECK=strict also compares shapes of equal counts, and the parameters of ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from arrays import torch

import pycollective as pc
from pycollective import testing

STRICT = {"PYCOLLECTIVE_CHECK": "strict"}


def mismatch(call: Callable[[Any], object], make: Callable[[tuple[int, ...]], Any]) -> None:
    """Makes a mismatch on both ranks. The next call is right."""
    odd = pc.rank() == pc.size() - 1
    with pytest.raises(
        pc.CollectiveMismatch, match=r"shape \(3, 2\) instead of \(2, 3\)|shape \(2, 3\) instead of"
    ):
        call(make((3, 2) if odd else (2, 3)))
    assert pc.allreduce(1) == pc.size()


def shapes_differ() -> None:
    for call in (
        pc.allreduce,
        pc.reduce,
        pc.broadcast,
        pc.scan,
        pc.exscan,
        lambda x: pc.allreduce(x, out=np.empty_like(x)),
        lambda x: pc.allreduce_async(x).wait(),
        lambda x: pc.plan_allreduce(x)(),
    ):
        mismatch(call, np.ones)
    mismatch(pc.allreduce, lambda shape: np.ones((*shape, 2))[..., 0])
    if torch is not None:
        mismatch(pc.allreduce, torch.ones)
    with pytest.raises(
        pc.CollectiveMismatch, match=r"shape \(1,\) instead of \(\)|shape \(\) instead of \(1,\)"
    ):
        pc.allreduce(np.ones((1,) if pc.rank() else ()))


def shapes_are_equal() -> None:
    rank, size = pc.rank(), pc.size()
    gaps, block = np.ones((2, 6))[:, ::2], np.ones((2, 3))
    assert (pc.allreduce(gaps if rank else block) == size).all()
    assert pc.allreduce(2) == 2 * size
    assert pc.allreduce([1.0, 2.0]) == [size, 2 * size]
    assert pc.allgather(np.ones(rank), counts="auto").shape == (size * (size - 1) // 2,)
    assert pc.reduce_scatter(np.ones(size)).tolist() == [size]
    pc.barrier()


@pytest.mark.parametrize("size", [2, 3])
def test_shapes_of_equal_counts_are_compared(size: int) -> None:
    testing.run(shapes_differ, size, env=STRICT)
    testing.run(shapes_are_equal, size, env=STRICT)


def counts_are_enough() -> None:
    x = np.ones((3, 2) if pc.rank() else (2, 3))
    assert (pc.allreduce(x) == pc.size()).all()


def test_without_it_counts_are_compared_alone() -> None:
    testing.run(counts_are_enough, 2)


def steps_with_its_own_gradients() -> None:
    weight, template = np.zeros(4, np.float32), np.full(2, pc.rank(), np.float32)
    reducer = pc.GradientReducer({"template": template, "weight": weight})
    for _ in range(2):  # with the parameters of all ranks
        gradient = np.full(4, pc.rank() + 1.0, np.float32)
        weight -= reducer.reduce({"weight": gradient})["weight"]
    gradient = np.full(4, pc.rank() + 1.0, np.float32)
    reducer.reduce({"weight": gradient})
    weight -= gradient
    for again in range(2):
        with pytest.raises(
            pc.CollectiveMismatch, match='parameter "weight" is not the same on rank 1 as on rank 0'
        ):
            reducer.reduce({"weight": gradient})
        assert pc.allreduce(1) == pc.size(), again
    reducer.ready("weight", gradient)  # begins the comparison, and waits for nothing
    with pytest.raises(pc.CollectiveMismatch, match='parameter "weight"'):
        reducer.finish()
    reducer.ready("weight", gradient)
    reducer.reset()
    pc.broadcast(weight)
    reducer.reduce({"weight": gradient})
    if pc.rank() == 0:
        reducer.reset()
    else:
        with pytest.raises(pc.CollectiveMismatch):
            reducer.reduce({"weight": gradient})
    mean = sum(range(1, pc.size() + 1)) / pc.size()
    assert reducer.reduce({"weight": gradient})["weight"].tolist() == [mean] * 4


@pytest.mark.parametrize("size", [2, 3])
def test_a_rank_that_steps_with_its_own_gradients_is_found_before_the_next_step(size: int) -> None:
    testing.run(steps_with_its_own_gradients, size, env=STRICT)


def trains_a_model_that_is_changed_on_one_rank() -> None:
    model = pc.torch.DataParallel(torch.nn.Linear(3, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(2, 3) * (pc.rank() + 1)).sum().backward()
        optimizer.step()
    if pc.rank() == 1:
        with torch.no_grad():
            model.module.bias.add_(1)
    optimizer.zero_grad()
    with pytest.raises(pc.CollectiveMismatch, match='parameter "bias" is not the same on rank 1'):
        model(torch.ones(2, 3)).sum().backward()


def trains_on_differently_many_batches() -> None:
    model = pc.torch.DataParallel(torch.nn.Linear(3, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pc.torch.join(model):
        for _ in range(1 + 2 * pc.rank()):
            optimizer.zero_grad()
            model(torch.ones(2, 3)).sum().backward()
            optimizer.step()
    model(torch.ones(2, 3)).sum().backward()


@pytest.mark.skipif(torch is None, reason="torch is not installed")
def test_in_join_ranks_that_have_no_batch_are_behind_without_an_error() -> None:
    testing.run(trains_on_differently_many_batches, 2, env=STRICT)


@pytest.mark.skipif(torch is None, reason="torch is not installed")
def test_a_model_that_was_changed_on_one_rank_is_found_in_backward() -> None:
    testing.run(trains_a_model_that_is_changed_on_one_rank, 2, env=STRICT)


class Halves(torch.nn.Module if torch is not None else object):  # type: ignore[misc]
    """A model that may raise in backward, between its two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(3, 3), torch.nn.Linear(3, 2)
        self.breaks = False

    def forward(self, x: Any) -> Any:
        between = self.first(x)
        if self.breaks:
            between.register_hook(self.fail)
        return self.last(between)

    def fail(self, _: Any) -> None:
        raise ZeroDivisionError


def leaves_join_in_the_middle_of_a_backward() -> None:
    model = pc.torch.DataParallel(Halves())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()

    model.module.breaks = pc.rank() == 1
    with (
        pytest.raises(ZeroDivisionError if pc.rank() == 1 else pc.CollectiveMismatch),
        pc.torch.join(model),
    ):
        step()
    model.module.breaks = False
    for _ in range(2):
        step()
    with pc.torch.join(model):
        step()
    step()


@pytest.mark.skipif(torch is None, reason="torch is not installed")
@pytest.mark.parametrize("size", [2, 3])
def test_after_a_step_of_join_that_was_cut_off_the_ranks_compare_in_step(size: int) -> None:
    testing.run(leaves_join_in_the_middle_of_a_backward, size, env=STRICT)


def makes_collectives_of_its_own_in_backward() -> None:
    first, last = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
    norm = pc.torch.SyncBatchNorm(3)
    model = pc.torch.DataParallel(
        torch.nn.Sequential(first, norm, last), bucket_nbytes=1, first_bucket_nbytes=1
    )
    x = norm(first(torch.randn(4, 3)))
    # on the other ranks the bucket of `last` is sent at the end
    (last(x) if pc.rank() == 0 else x).square().sum().backward()
    same = pc.allgather(last.weight.grad[None])
    assert all(torch.equal(each, same[0]) for each in same)
    assert model.module is not None


@pytest.mark.skipif(torch is None, reason="torch is not installed")
def test_the_comparison_has_no_order_to_collectives_of_the_model() -> None:
    testing.run(makes_collectives_of_its_own_in_backward, 2, env=STRICT)
