"""pycollective.torch.auto: a script that weighs by the size of a batch is told so, and no other."""

from __future__ import annotations

import linecache
import sysconfig
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

from pycollective.torch.auto import applied, sizes

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


def shown_with_its_place() -> None:
    """What torch's own example does."""
    model, optimizer, loader = parts()
    for batch_idx, (data, target) in enumerate(loader):
        loss = (model(data) - target).square().mean()
        loss.backward()
        optimizer.step()
        print("[{}/{}] {:.6f}".format(batch_idx * len(data), len(loader), loss.item()))  # noqa: UP032
        print(f"{batch_idx * len(data)} {loss.item()}")
        print("%d %f" % (batch_idx * len(data), loss.item()))  # noqa: UP031


def counted_elsewhere() -> None:
    """Neither in the loop that trains nor in a function that is called there."""
    model, optimizer, loader = parts()
    count, total = 0, 0.0
    for x, y in loader:

        def evaluate(x: Any = x) -> float:
            seen = 0
            seen += len(x)
            return float(model(x).sum().item() * len(x)) / seen

        total += step(model, optimizer, x, y)
    with torch.no_grad():
        for x, _ in loader:
            count += x.shape[0]
    assert count == 8


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


@pytest.mark.parametrize("train", [divided_by_batches, shown_with_its_place, counted_elsewhere])
def test_what_is_right_or_only_shown_is_no_reason_for_a_warning(train: Callable[[], None]) -> None:
    assert testing.run(told, 2, train) == [[], []]


LOOP = """
def count(loader, look):
    total = 0
    for x in loader:
        found = look()
        total += len(x)
    return found
"""


def found_in(name: str, text: str) -> str:
    """What weighing() finds in the loop above, when the text of its file is that."""
    space: dict[str, Any] = {}
    exec(compile(LOOP, name, "exec"), space)
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    try:
        found: str = space["count"]([[1]], sizes.weighing)
    finally:
        del linecache.cache[name]
    return found


def test_only_texts_of_the_program_are_read_and_none_of_them_stops_it() -> None:
    assert found_in("/home/me/train.py", LOOP) == "train.py:6"
    assert found_in(f"{sysconfig.get_path('purelib')}/lightning/loop.py", LOOP) == ""
    for number, text in enumerate(("-" * 100_000 + "1", '"""', "def (", "\0", "")):
        assert found_in(f"/home/me/broken{number}.py", text) == ""
