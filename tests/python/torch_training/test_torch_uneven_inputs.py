"""Ranks with different numbers of batches: pycollective.torch.join()."""

from __future__ import annotations

from typing import Any

import pytest
from arrays import torch
from named_checks import Checks, assert_passed

import pycollective as pc

if torch is None:
    pytest.skip("torch is not installed", allow_module_level=True)

from torch import nn

from pycollective.torch import DataParallel, DistributedOptimizer, join

CHECKS = Checks()


def ones(out: int = 1) -> nn.Linear:
    layer = nn.Linear(2, out, bias=False)
    nn.init.ones_(layer.weight)
    return layer


def batches() -> int:
    """Returns one batch on rank 0, two on rank 1, and so on."""
    return pc.rank() + 1


def alone(steps: int, size: int) -> torch.Tensor:
    """Returns the weights after those steps.

    In step k the ranks from k on have a batch with a gradient of 1 each.
    """
    weight = 1.0
    for step in range(steps):
        weight -= 0.5 * (size - step) / size
    return torch.full((1, 2), weight)


def train(model: Any, optimizer: Any) -> None:
    for _ in range(batches()):
        optimizer.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()


@CHECKS.on(1, 2, 4)
def data_parallel_steps_with_the_batches_that_are_left() -> None:
    model = DataParallel(ones())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(2):  # the block may be entered again
        nn.init.ones_(model.module.weight)
        with join(model):
            train(model, optimizer)
        assert torch.equal(model.module.weight, alone(pc.size(), pc.size()))
    model(torch.ones(1, 2)).sum().backward()  # as before
    assert pc.allreduce(1) == pc.size()


@CHECKS.on(2, 4)
def an_optimizer_does_so_too_and_all_ranks_end_equal() -> None:
    layer = ones()
    optimizer = DistributedOptimizer(torch.optim.SGD(layer.parameters(), lr=0.5), layer.named_parameters())
    with optimizer.join():
        train(layer, optimizer)
    assert torch.equal(layer.weight, alone(pc.size(), pc.size()))


@CHECKS.on(3)
def two_models_of_one_loop_and_buffers_of_the_ranks_that_train() -> None:
    first, second = DataParallel(nn.Sequential(ones(2), nn.BatchNorm1d(2))), DataParallel(ones())
    with join(first, second):
        for step in range(batches()):
            x = torch.tensor([[1.0, 2.0], [3.0, 5.0]]) * (step + 1)
            second(first(x)).sum().backward()
            first(x).sum().backward()
            with first.no_sync():
                first(x).sum().backward()
    everywhere = pc.allgather_object(
        [each.tolist() for model in (first, second) for each in model.state_dict().values()]
    )
    assert all(each == everywhere[0] for each in everywhere)
    assert first.module[1].num_batches_tracked == 3 * pc.size()  # those of the rank with the most batches


@CHECKS.on(2)
def models_in_another_order_are_refused() -> None:
    models = [DataParallel(ones()) for _ in range(2)]
    with (
        join(*models),
        pytest.raises(pc.CollectiveMismatch, match="forward of model 0 .* forward of model 1"),
    ):
        models[pc.rank()](torch.ones(1, 2))
    pc.barrier()


@CHECKS.on(2)
def a_forward_beside_a_backward_is_refused_and_a_good_step_follows() -> None:
    model = DataParallel(ones())
    loss = model(torch.ones(1, 2)).sum()
    with join(model), pytest.raises(pc.CollectiveMismatch, match="forward of model 0 .* backward of model 0"):
        loss.backward() if pc.rank() else model(torch.ones(1, 2))
    model.module.zero_grad()
    with join(model):
        model(torch.ones(1, 2)).sum().backward()
    assert torch.equal(model.module.weight.grad, torch.ones(1, 2))


@CHECKS.on(2, 3)
def a_rank_that_leaves_by_an_exception_ends_the_block_of_the_others() -> None:
    model = DataParallel(ones())

    def train_until_rank_1_fails() -> None:
        with join(model):
            model(torch.ones(1, 2)).sum().backward()
            if pc.rank() == 1:
                raise ZeroDivisionError
            model(torch.ones(1, 2)).sum().backward()

    with pytest.raises(ZeroDivisionError if pc.rank() == 1 else pc.PeerExited):
        train_until_rank_1_fails()
    assert pc.allreduce(1) == pc.size()


@CHECKS.on(2, 3)
def sparse_gradients_of_an_optimizer_are_those_of_the_ranks_that_are_left() -> None:
    table = nn.Embedding(4, 1, sparse=True)
    nn.init.ones_(table.weight)
    optimizer = DistributedOptimizer(torch.optim.SGD(table.parameters(), lr=1.0))
    with join(optimizer):
        for _ in range(pc.rank()):  # rank 0 has none at all
            optimizer.zero_grad()
            table(torch.tensor([2])).sum().backward()
            optimizer.step()
    steps = pc.size() - 1
    expected = 1 - sum((pc.size() - 1 - step) / pc.size() for step in range(steps))
    assert table.weight.detach()[2].item() == pytest.approx(expected, abs=1e-6)
    assert table.weight.detach()[0].item() == 1


@CHECKS.on(1)
def what_cannot_be_joined_is_refused() -> None:
    model = DataParallel(ones())
    with pytest.raises(pc.InvalidArgument, match="needs the models"), join():
        pass
    with model.join(), pytest.raises(pc.InvalidArgument, match="already"), model.join():
        pass
    with pytest.raises(ZeroDivisionError), model.join():
        raise ZeroDivisionError
    with model.join():
        model(torch.ones(1, 2)).sum().backward()


@pytest.mark.parametrize(("size", "name"), CHECKS.rows())
def test_on_every_rank(size: int, name: str) -> None:
    assert_passed(__name__, size, name)
