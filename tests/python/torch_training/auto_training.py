"""What the checks of pycollective.torch.auto train: alone with torch, and in applied().

The numbers must agree.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pycollective as pc
from pycollective.torch.auto import applied

__all__ = ["Numbers", "accuracy", "assert_same", "data", "net", "state", "step_with", "train"]

Numbers = list[Any]


def data(count: int) -> TensorDataset:
    inputs = torch.linspace(-1, 1, count * 3, dtype=torch.float64).reshape(count, 3).sin()
    return TensorDataset(inputs, (inputs.sum(1, keepdim=True) * 2).cos())


def net(*, norm: bool = True) -> nn.Sequential:
    torch.manual_seed(5)
    middle: list[nn.Module] = [nn.BatchNorm1d(6)] if norm else []
    return nn.Sequential(nn.Linear(3, 6, bias=not norm), *middle, nn.Tanh(), nn.Linear(6, 1)).double()


def state(model: nn.Module) -> Numbers:
    return [each.detach().double().numpy().copy() for each in model.state_dict().values()]


def step_with(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor) -> float:
    optimizer.zero_grad()
    loss = (model(x) - y).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


def accuracy(model: nn.Module, loader: DataLoader[Any]) -> float:
    """Disables gradients inside the loop only, as is common."""
    correct = 0
    model.eval()
    for x, y in loader:
        with torch.no_grad():
            correct += int(((model(x) > 0) == (y > 0)).sum())
    model.train()
    return correct / len(loader.dataset)  # type: ignore[arg-type]


def train(loader: DataLoader[Any], parts: list[int], epochs: int = 2, *, evaluated: bool = False) -> Numbers:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    numbers: Numbers = []
    for _ in range(epochs):
        for step, (x, y) in enumerate(loader):
            parts.append(len(x))
            if evaluated and step == 2:  # a loop in the loop, between a batch and its use
                numbers.append(accuracy(model, DataLoader(data(9), batch_size=4)))
            numbers.append(step_with(model, optimizer, x, y))
        numbers.append(accuracy(model, loader))
    return [*numbers, *state(model)]


def assert_same(
    function: Callable[[list[int]], Numbers], *, cut: bool = True, tolerance: float = 1e-11
) -> None:
    sizes: list[int] = []
    alone_sizes: list[int] = []
    alone = function(alone_sizes)
    with applied():
        together = function(sizes)
    assert len(alone) == len(together) > 0
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_allclose(other, one, rtol=tolerance, atol=tolerance)
    if cut:
        assert sum(sizes) < sum(alone_sizes)
        everywhere = pc.allreduce(np.array([sizes, [1] * len(sizes)]))[0]
        whole = [size for size, total in zip(alone_sizes, everywhere, strict=True) if size != total]
        assert len(whole) < len(sizes) / 2  # the first batch, and those smaller than the world
    else:
        assert sizes == alone_sizes
