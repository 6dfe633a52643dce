"""pycollective.torch.auto: a script that weighs by the size of a batch is told so, and no other."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import launchers
import pytest

from pycollective import testing

if launchers.torch() is not None:
    pytest.skip(str(launchers.torch()), allow_module_level=True)

import torch
from torch.utils.data import DataLoader, TensorDataset

from pycollective.torch.auto import applied

pytestmark = pytest.mark.timeout(240)


def parts() -> tuple[Any, Any, Any]:
    torch.set_num_threads(1)
    model = torch.nn.Linear(2, 1)
    data = TensorDataset(torch.arange(16.0).reshape(8, 2), torch.zeros(8, 1))
    return model, torch.optim.SGD(model.parameters(), lr=1e-4), DataLoader(data, batch_size=4)


def weighed_by_len() -> None:
    model, optimizer, loader = parts()
    total = 0.0
    for x, y in loader:
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(x)


def weighed_by_a_meter() -> None:
    model, optimizer, loader = parts()
    seen: list[tuple[float, int]] = []
    update: Callable[[float, int], None] = lambda value, n: seen.append((value, n))  # noqa: E731
    for batch in loader:
        inputs, targets = batch
        inputs = inputs.double().float()
        loss = (model(inputs) - targets).square().mean()
        loss.backward()
        optimizer.step()
        update(loss.item(), inputs.size(0))


def counted_by_shape() -> None:
    model, optimizer, loader = parts()
    count = 0
    for x, y in loader:
        step(model, optimizer, x, y)
        count = count + x.shape[0]


def step(model: Any, optimizer: Any, x: Any, y: Any) -> float:
    loss = (model(x) - y).square().mean()
    loss.backward()
    optimizer.step()
    return float(loss.item())


def divided_by_batches() -> None:
    model, optimizer, loader = parts()
    total = 0.0
    for x, y in loader:
        total += step(model, optimizer, x.view(x.size(0), -1), y)
    assert total / len(loader) > 0


def told(train: Callable[[], None]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught, applied():
        warnings.simplefilter("always")
        train()
        train()
    return [str(each.message) for each in caught if "size of a batch" in str(each.message)]


@pytest.mark.parametrize("train", [weighed_by_len, weighed_by_a_meter, counted_by_shape])
def test_one_warning_names_the_line(train: Callable[[], None]) -> None:
    first, second = testing.run(told, 2, train)
    assert second == []
    (warning,) = first
    assert "test_auto_sizes.py:" in warning
    line = int(warning.partition("test_auto_sizes.py:")[2].split()[0])
    with open(__file__) as file:
        text = file.read().splitlines()[line - 1]
    assert any(size in text for size in ("len(x)", "inputs.size(0)", "x.shape[0]"))


def test_a_mean_over_batches_is_right_and_nothing_is_said() -> None:
    assert testing.run(told, 2, divided_by_batches) == [[], []]
