"""pycollective.torch.auto warns about numbers of a part, and where a script weighs by its size."""

from __future__ import annotations

import ast
import contextlib
import io
import linecache
import re
import sysconfig
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import launchers
import numpy as np
import pytest

import pycollective as pc
from pycollective import testing

if launchers.torch() is not None:
    pytest.skip(str(launchers.torch()), allow_module_level=True)

import torch
from torch.utils.data import DataLoader, TensorDataset

from pycollective.torch.auto import applied, batches, sizes

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
    """torch's own example does so."""
    model, optimizer, loader = parts()
    for batch_idx, (data, target) in enumerate(loader):
        loss = (model(data) - target).square().mean()
        loss.backward()
        optimizer.step()
        print("[{}/{}] {:.6f}".format(batch_idx * len(data), len(loader), loss.item()))  # noqa: UP032
        print(f"{batch_idx * len(data)} {loss.item()}")
        print("%d %f" % (batch_idx * len(data), loss.item()))  # noqa: UP031


def counted_elsewhere() -> None:
    """It is neither in the loop that trains nor in a function that is called there."""
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


def warned(train: Callable[[], None]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught, applied():
        warnings.simplefilter("always")
        train()
        train()
    return [f"{Path(each.filename).name}: {each.message}" for each in caught]


# Cases that the source does not show for certain, or that do not depend on sizes. The general
# warning covers these.


def returned_by_the_step() -> None:
    model, optimizer, loader = parts()

    def step(batch: Any) -> tuple[float, int]:
        x, y = batch
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        return float(loss.item()), len(x)  # may

    total = count = 0.0
    for batch in loader:
        value, n = step(batch)
        total += value * n
        count += n


class Trainer:
    def __init__(self) -> None:
        self.model, self.optimizer, self.loader = parts()
        self.total = self.count = 0.0

    def fit(self) -> None:
        for _, (x, y) in enumerate(self.loader):
            self.step(x, y)

    def step(self, x: Any, y: Any) -> None:
        loss = (self.model(x) - y).square().mean()
        loss.backward()
        self.optimizer.step()
        self.log(loss.item(), x)

    def log(self, loss: float, x: Any) -> None:
        self.total += loss * x.shape[0]  # may
        self.count += x.shape[0]


def kept_by_a_trainer() -> None:
    Trainer().fit()


def in_a_branch(chosen: bool = False) -> None:
    model, optimizer, loader = parts()
    total = 0.0
    for x, y in loader:
        total += step(model, optimizer, x, y) if chosen else 1
        step(model, optimizer, x, y)
        if chosen:
            total += len(x)  # may


def in_a_branch_that_is_never_taken() -> None:
    model, optimizer, loader = parts()
    total = 0.0
    for x, y in loader:
        if True:
            step(model, optimizer, x, y)
        else:
            total += len(x)
        if False:
            total += len(x)


def read_before_backward() -> None:
    model, optimizer, loader = parts()
    total = 0.0
    for x, y in loader:
        loss = (model(x) - y).square().mean()
        total += loss.item()
        loss.backward()
        optimizer.step()


def terms_of_the_loss() -> None:
    model, optimizer, loader = parts()
    total = 0.0
    for x, y in loader:
        first, second = (model(x) - y).square().mean(), model(x).square().mean()
        (first + second).backward()
        optimizer.step()
        total += first.item() + second.item()


def right_answers() -> None:
    model, optimizer, loader = parts()
    accuracy = 0.0
    for x, y in loader:
        step(model, optimizer, x, y)
        accuracy += ((model(x) > 0) == (y > 0)).double().mean().item()


def counted_by_a_library() -> None:
    """torchmetrics does so."""
    model, optimizer, loader = parts()
    seen: list[Any] = []
    for x, y in loader:
        step(model, optimizer, x, y)
        seen.append(model(x).argmax(1) == y)


def in_the_branch_that_trains() -> None:
    model, optimizer, loader = parts()
    total = 0.0
    for x, y in loader:
        if len(x) > 1:
            step(model, optimizer, x, y)
            total += len(x)


class Counting(Trainer):
    def step(self, x: Any, y: Any) -> None:
        loss = (self.model(x) - y).square().mean()
        loss.backward()
        self.optimizer.step()
        self.count += x.size(0)


def kept_in_the_function_that_steps() -> None:
    Counting().fit()


WEIGHING = [
    weighed_by_len,
    weighed_by_a_meter,
    counted_by_shape,
    in_the_branch_that_trains,
    kept_in_the_function_that_steps,
]


OTHERS = [read_before_backward, terms_of_the_loss, right_answers, counted_by_a_library]
RIGHT = [divided_by_batches, shown_with_its_place, counted_elsewhere, in_a_branch_that_is_never_taken]
MAYBE = [returned_by_the_step, kept_by_a_trainer, in_a_branch]
Warnings = dict[str, tuple[list[str], list[str]]]


def warned_of_all() -> list[list[str]]:
    return [warned(each) for each in (*WEIGHING, *OTHERS, *RIGHT, *MAYBE)]


@pytest.fixture(scope="module")
def warnings_of() -> Warnings:
    """Returns what each of two ranks warns of, by what it trains."""
    names = [each.__name__ for each in (*WEIGHING, *OTHERS, *RIGHT, *MAYBE)]
    return dict(zip(names, zip(*testing.run(warned_of_all, 2, timeout_s=120), strict=True), strict=True))


@pytest.mark.parametrize("train", WEIGHING)
def test_one_warning_names_the_line(train: Callable[[], None], warnings_of: Warnings) -> None:
    first, second = warnings_of[train.__name__]
    assert second == []
    (warning,) = first
    assert "adds up or weighs by the size of a batch" in warning
    assert any(size in line_in(warning) for size in ("len(x)", "inputs.size(0)", "x.shape[0]", "x.size(0)"))


def line_in(warning: str) -> str:
    """Returns the line that the warning names."""
    number = re.search(r"test_auto_sizes\.py:(\d+)", warning)
    assert number is not None, warning
    return Path(__file__).read_text().splitlines()[int(number.group(1)) - 1]


@pytest.mark.parametrize("train", [*OTHERS, *RIGHT])
def test_with_the_first_part_one_rank_says_once_what_is_of_the_whole_batch_and_what_is_not(
    train: Callable[[], None], warnings_of: Warnings
) -> None:
    first, second = warnings_of[train.__name__]
    assert second == []
    (warning,) = first
    assert warning.startswith("test_auto_sizes.py: pycollective.torch.auto: from here on each rank computes")
    assert "pc.metrics.mean()" in warning
    assert "\n" not in warning
    assert "the size of a batch" not in warning


@pytest.mark.parametrize("train", MAYBE)
def test_what_may_weigh_by_sizes_is_named_as_what_may(
    train: Callable[[], None], warnings_of: Warnings
) -> None:
    first, second = warnings_of[train.__name__]
    assert second == []
    (warning,) = first
    assert "from here on" in warning
    assert "may add up or weigh by the size of a batch" in warning
    assert line_in(warning).endswith("# may")


def warned_of_nothing() -> list[str]:
    with warnings.catch_warnings(record=True) as caught, applied():
        warnings.filterwarnings("ignore", "pycollective.torch.auto")
        right_answers()
        weighed_by_len()
    return [str(each.message) for each in caught]


def test_the_warnings_can_be_turned_off() -> None:
    assert testing.run(warned_of_nothing, 2) == [[], []]


def accuracies_of_whole_batches() -> list[float]:
    """The example of docs/auto.md."""
    torch.manual_seed(3)
    model = torch.nn.Linear(2, 1).double()
    inputs = torch.linspace(-1, 1, 30, dtype=torch.float64).reshape(15, 2).sin()
    data = TensorDataset(inputs, (inputs.sum(1, keepdim=True) > 0.3).double())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    accuracies = []
    for _ in range(2):
        for x, y in DataLoader(data, batch_size=5):
            scores = model(x)
            loss = (scores - y).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            accuracies.append(pc.metrics.mean(((scores > 0.5) == y).double().mean(), weight=len(y)))
    return accuracies


def those_of_one_process() -> None:
    alone = accuracies_of_whole_batches()
    with warnings.catch_warnings(), applied():
        warnings.simplefilter("ignore")
        together = accuracies_of_whole_batches()
    np.testing.assert_allclose(together, alone, rtol=1e-12)
    assert len(set(alone)) > 1


def test_a_mean_over_the_ranks_is_that_of_the_whole_batch_also_of_the_first() -> None:
    testing.run(those_of_one_process, 2)


LOOP = """
def count(loader, look):
    total = 0
    for x in loader:
        found = look()
        total += len(x)
    return found
"""


def found_in(name: str, text: str) -> sizes.Place | None:
    """Returns what weighing() finds in the loop above if this is the text of its file."""
    space: dict[str, Any] = {}
    exec(compile(LOOP, name, "exec"), space)
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    try:
        found: sizes.Place | None = space["count"]([[1]], sizes.weighing)
    finally:
        del linecache.cache[name]
    return found


def test_only_texts_of_the_program_are_read_and_none_of_them_stops_it() -> None:
    assert found_in("/home/me/train.py", LOOP) == ("train.py:6", True)
    assert found_in(f"{sysconfig.get_path('purelib')}/lightning/loop.py", LOOP) is None
    for number, text in enumerate(("-" * 100_000 + "1", '"""', "def (", "\0", "")):
        assert found_in(f"/home/me/broken{number}.py", text) is None


# Lines of a loop over x and y, and whether they weigh by the size of a batch.
LINES = {
    "n = x.size(0); total += loss.item() * n": True,
    "n = x.size(0); meter.update(loss.item(), n)": True,
    "n = len(x); m = 2 * n; count += m": True,
    "n, features = x.shape; count += n": True,
    "n, features = x.shape; width += features": False,
    "n = x.shape[1]; width += n": False,
    "flat = x.shape[1] * x.shape[2]": False,
    "flat = x.shape[0] * x.shape[1]": False,
    "width += x.size(-1)": False,
    "width += x.size(dim=1)": False,
    "count += x.size(dim=0)": True,
    "count = count + x.shape[0]": True,
    "self.count = self.count + len(x)": True,
    "weighed = loss.item() * len(x)": True,
    "n = x.size(0); hidden = model.zeros(n); total += loss.item()": False,
}


@pytest.mark.parametrize("line", LINES)
def test_a_line_weighs_if_the_size_of_the_batch_is_in_a_sum_or_beside_a_loss(line: str) -> None:
    text = f"for x, y in loader:\n    optimizer.step()\n    {line}\n"
    weighs = list(sizes._lines(sizes._around(ast.parse(text), 2), 2))
    assert weighs == ([(3, True)] if LINES[line] else [])


def test_what_python_warns_of_in_a_text_is_not_said_again() -> None:
    for action in ("always", "error"):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter(action)
            text = LOOP + 'pattern = "\\d"\n'
            assert found_in(f"/home/me/warned_{action}.py", text) == (f"warned_{action}.py:6", True)
        assert not caught


def with_warnings_as_errors() -> tuple[int, str]:
    with warnings.catch_warnings(), applied(), contextlib.redirect_stderr(io.StringIO()) as said:
        warnings.simplefilter("error")
        weighed_by_len()
        weighed_by_len()
    return pc.allreduce(1), said.getvalue()


def test_ranks_for_which_warnings_are_errors_train_on() -> None:
    (first, said), (second, nothing) = testing.run(with_warnings_as_errors, 2)
    assert (first, second, nothing) == (2, 2, "")
    assert "adds up or weighs by the size of a batch" in said


def test_a_warning_that_would_be_an_error_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        batches._warn("numbers of a part", stacklevel=2)
    assert "numbers of a part" in capsys.readouterr().err
