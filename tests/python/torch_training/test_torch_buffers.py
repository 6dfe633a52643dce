"""Buffers of a module in pc.torch.DataParallel are those of rank 0, which autograd notices."""

from __future__ import annotations

import copy

import pytest
from arrays import torch
from named_checks import Checks, assert_passed

import pycollective as pc

if torch is None:
    pytest.skip("torch is not installed", allow_module_level=True)

from torch import nn

from pycollective.torch.data_parallel import DataParallel

CHECKS = Checks()


@CHECKS.on(1, 2, 3, 4)
def buffers_are_those_of_rank_0() -> None:
    rank = pc.rank()
    torch.manual_seed(rank)
    inner = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    inner[1].running_mean.fill_(rank)
    model = DataParallel(inner)
    assert not inner[1].running_mean.any(), "rank 0's"
    assert all((pc.allgather(each.detach()[None]) == each).all() for each in inner.parameters())
    x = torch.randn(4, 3)
    model(x)
    inner[1].momentum = 0.0
    inner[1].running_var = torch.full((3,), 5.0 + rank)  # another tensor
    with model.no_sync():
        model(x)
    assert pc.allgather(inner[1].num_batches_tracked[None]).tolist() == [2] * pc.size()
    model(x)
    assert inner[1].running_var.tolist() == [5.0] * 3
    model.eval()
    inner[1].running_var.fill_(rank)
    if rank == 0:
        model(x)  # each rank evaluates independently
    assert inner[1].running_var.tolist() == [rank] * 3
    plain = DataParallel(nn.BatchNorm1d(3), broadcast_buffers=False)
    plain(x)
    plain.module.running_mean.fill_(rank)
    plain(x)
    assert pc.allgather(plain.module.running_mean[None])[:, 0].unique().numel() == pc.size()


class Scaled(nn.Module):
    """Its graph keeps a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 1)
        self.register_buffer("scale", torch.full((1,), 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.scale


@CHECKS.on(1, 2, 3)
def two_forwards_may_come_before_one_backward() -> None:
    rank, size = pc.rank(), pc.size()
    torch.manual_seed(0)
    real, fake = torch.randn(4 * size, 3), torch.randn(4 * size, 3)
    mine = slice(4 * rank, 4 * rank + 4)
    alone = Scaled()
    model = DataParallel(copy.deepcopy(alone))
    (alone(real).mean() - alone(fake).square().mean()).backward()
    (model(real[mine]).mean() - model(fake[mine]).square().mean()).backward()
    for each, same in zip(model.module.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(each.grad, same.grad)
    normed = DataParallel(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)))
    (normed(real[mine]).mean() - normed(fake[mine]).mean()).backward()
    for each in normed.module.parameters():
        assert (pc.allgather(each.grad[None]) == each.grad).all()


class Adapting(nn.Module):
    """Its graph keeps a buffer that each rank computes from its own data."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 1)
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.scale = x.detach().abs().mean()
        return self.linear(x) * self.scale


@CHECKS.on(2, 3)
def a_buffer_that_changes_between_two_forwards_is_not_changed_behind_autograds_back() -> None:
    rank = pc.rank()
    model = DataParallel(Adapting())
    x = torch.full((2, 3), rank + 1.0)
    total = model(x).sum() + model(x).sum()
    if rank == 0:
        with pytest.raises(pc.CollectiveMismatch):
            total.backward()
    else:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            total.backward()
        model.reset()
    for _ in range(2):
        model(x).sum().backward()
    assert (pc.allgather(model.module.linear.weight.grad[None]) == model.module.linear.weight.grad).all()


@CHECKS.on(1, 2)
def a_buffer_made_in_inference_mode_is_given_too() -> None:
    module = nn.Linear(2, 1)
    with torch.inference_mode():
        module.register_buffer("table", torch.full((3,), float(pc.rank())))
    model = DataParallel(module)
    for _ in range(2):
        with torch.inference_mode():
            module.table.fill_(pc.rank() + 1.0)
        model(torch.ones(1, 2)).sum().backward()
        assert module.table.tolist() == [1.0] * 3


@pytest.mark.parametrize(("size", "name"), CHECKS.rows())
def test_on_every_rank(size: int, name: str) -> None:
    assert_passed(__name__, size, name)
