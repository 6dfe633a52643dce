"""Sparse gradients are those of all ranks.

DataParallel gathers them, and DistributedOptimizer sends them as dense ones.
"""

from __future__ import annotations

import pytest
from arrays import torch
from named_checks import Checks, assert_passed

import pycollective as pc

if torch is None:
    pytest.skip("torch is not installed", allow_module_level=True)

from torch import nn

from pycollective.torch import DataParallel, DistributedOptimizer

CHECKS = Checks()


@CHECKS.on(1, 2, 3, 4)
def sparse_gradients_are_gathered() -> None:
    rank, size = pc.rank(), pc.size()
    table = nn.Embedding(10, 2, sparse=True)
    model = DataParallel(nn.ModuleDict({"table": table, "line": nn.Linear(2, 1)}))
    rows = torch.arange(rank + 1) * 2
    for _ in range(2):
        (model.module["line"](table(rows)).sum() * size).backward()
    expected = torch.zeros(10, 2)
    for other in range(size):
        expected[torch.arange(other + 1) * 2] += model.module["line"].weight.detach()[0]
    assert table.weight.grad.is_sparse
    torch.testing.assert_close(table.weight.grad.to_dense(), 2 * expected)
    model.zero_grad()
    rows = rows[:0] if rank == 0 else rows  # and a rank without any rows
    table(rows).sum().backward()
    got = table.weight.grad.to_dense()[0, 0] if size > 1 else 0.0
    assert got == pytest.approx((size - 1) / size)
    model.zero_grad()
    used = table(torch.tensor([0])) if rank else torch.ones(1, 2)  # and a rank that does not use it at all
    model.module["line"](used).sum().backward()
    torch.testing.assert_close(
        table.weight.grad.to_dense()[0], model.module["line"].weight.detach()[0] * (size - 1) / size
    )


@CHECKS.on(1, 2, 3)
def sparse_gradients_of_an_optimizer_are_averaged_by_row() -> None:
    rank, size = pc.rank(), pc.size()
    for kind in (torch.optim.SGD, torch.optim.SparseAdam):
        table, line = nn.Embedding(10, 2, sparse=True), nn.Linear(2, 1)
        nn.init.ones_(table.weight)
        nn.init.ones_(line.weight)
        mine = (
            [*table.parameters()]
            if kind is torch.optim.SparseAdam
            else [*table.parameters(), *line.parameters()]
        )
        optimizer = DistributedOptimizer(kind(mine, lr=0.25))
        for step in range(3):
            optimizer.zero_grad()
            weight = line.weight.detach()[0].clone()
            uses = [
                other for other in range(size) if step == 0 or other > 0 or size == 1
            ]  # then rank 0 does not use it
            rows = torch.cat(
                (torch.zeros(1, dtype=torch.int64), torch.arange(rank + 1 + step))
            )  # row 0 twice
            inputs = table(rows) if rank in uses else torch.ones(1, 2)
            (line(inputs).sum() * size).backward()
            optimizer.synchronize()  # for a rank that uses no parameter of the optimizer
            expected = torch.zeros(10, 2)
            for other in uses:
                expected[: other + 1 + step] += weight
                expected[0] += weight
            assert table.weight.grad.is_sparse
            torch.testing.assert_close(table.weight.grad.to_dense(), expected)
            optimizer.step()
        assert pc.allgather_object(table.weight.tolist()) == [table.weight.tolist()] * size
        optimizer.close()
    tied = nn.Embedding(3, 2, sparse=True)
    nn.init.ones_(tied.weight)
    optimizer = DistributedOptimizer(torch.optim.SGD(tied.parameters(), lr=0.25))
    dense = rank == 1  # the output layer of a model uses the same weight
    (
        nn.functional.linear(torch.ones(1, 2), tied.weight) if dense else tied(torch.tensor([2]))
    ).sum().backward()
    expected = torch.zeros(3, 2)
    for other in range(size):
        expected[slice(None) if other == 1 else 2] += 1
    torch.testing.assert_close(tied.weight.grad.to_dense(), expected / size)
    optimizer.close()
    twice = nn.Embedding(4, 1, sparse=True)
    optimizer = DistributedOptimizer(torch.optim.SGD(twice.parameters(), lr=0.25), backward_passes_per_step=2)
    for passed in range(2):
        (twice(torch.tensor([0, 0, 1 + passed])).sum() * (rank + 1)).backward()
    assert (twice.weight.grad.to_dense()[:, 0] == torch.tensor([4.0, 1.0, 1.0, 0.0]) * (size + 1) / 2).all()
    optimizer.close()
    summed = DistributedOptimizer(
        torch.optim.SGD(nn.Embedding(3, 1, sparse=True).parameters(), lr=0.25), op="sum"
    )
    summed.param_groups[0]["params"][0].grad = torch.ones(3, 1).to_sparse()
    with pytest.raises(pc.Unsupported, match="sparse"):
        summed.synchronize()


@pytest.mark.parametrize(("size", "name"), CHECKS.rows())
def test_on_every_rank(size: int, name: str) -> None:
    assert_passed(__name__, size, name)
