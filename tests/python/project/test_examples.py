"""The example programs, as users run them."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import programs
import pytest
import sampled
from numpy.typing import NDArray

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
pytestmark = pytest.mark.timeout(300)
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
# One thread each, because several would wait for each other on a busy machine.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
# Daily they train for a few epochs on forked ranks; the one on NumPy, in its drawn cases, is
# started as users start it. The full run does what the demo does.
SHORT = () if sampled.FULL else ("--epochs", "5")
DIGITS = ["digits_numpy.py", pytest.param("digits_torch.py", marks=needs_torch)]


def run(ranks: int, example: str, *arguments: str) -> list[str]:
    launcher = [
        sys.executable,
        "-c",
        "import sys; from pycollective.cli import main; sys.exit(main())",
        "run",
    ]
    words = [*launcher, "-n", str(ranks), "--no-prefix", str(EXAMPLES / example), *arguments]
    done = subprocess.run(words, capture_output=True, text=True, timeout=140, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def on_forked_ranks(ranks: int, example: str, *arguments: str) -> list[str]:
    return programs.run(ranks, EXAMPLES / example, *arguments)[0].splitlines()


@dataclass(frozen=True)
class Training:
    result: dict[str, Any]  # the last line of output
    parameters: list[NDArray[np.float64]]


def train(ranks: int, example: str, folder: Path) -> Training:
    dump = folder / f"{ranks}.npz"
    flags = (*SHORT, "--json", "--dtype", "float64", "--dump", str(dump))
    said = run(ranks, example, *flags) if sampled.FULL else on_forked_ranks(ranks, example, *flags)
    result = json.loads(said[-1])
    with np.load(dump) as arrays:
        return Training(result, [arrays[name] for name in arrays.files])


@pytest.fixture(scope="module", params=DIGITS)
def trainings(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Training, Training]:
    """Returns the same training on one rank and on four."""
    folder = tmp_path_factory.mktemp("digits")
    return train(1, request.param, folder), train(4, request.param, folder)


def test_hello() -> None:
    assert sorted(run(3, "01_hello.py")) == [f"rank {r} of 3: [6. 6. 6.]" for r in range(3)]


def test_the_token_goes_round() -> None:
    assert run(3, "02_send_recv.py") == ["the token has seen 3 ranks and adds up to 3"]


def test_the_digits_are_learned(trainings: tuple[Training, Training]) -> None:
    for ranks, training in zip((1, 4), trainings, strict=True):
        assert training.result["ranks"] == ranks
        assert training.result["accuracy"] >= 0.95
    assert trainings[1].result["seconds"] < 60


def test_all_ranks_have_the_same_parameters_after_every_epoch_and_they_change(
    trainings: tuple[Training, Training],
) -> None:
    result = trainings[1].result
    assert [len(epoch) for epoch in result["hashes"]] == [4] * result["epochs"]
    assert all(len(set(epoch)) == 1 for epoch in result["hashes"])
    assert len({epoch[0] for epoch in result["hashes"]}) == result["epochs"]


def test_four_ranks_learn_what_one_rank_learns(trainings: tuple[Training, Training]) -> None:
    alone, together = trainings
    assert len(alone.parameters) >= 4
    for one, four in zip(alone.parameters, together.parameters, strict=True):
        np.testing.assert_allclose(four, one, rtol=0, atol=1e-10)


@pytest.mark.parametrize("example", sampled.some(DIGITS, 1, of="demo"))
def test_the_digits_are_learned_in_float32_as_the_demo_runs_them(example: str) -> None:
    ranks = 4 if sampled.FULL else 2
    start = run if sampled.FULL or example == "digits_numpy.py" else on_forked_ranks
    result = json.loads(start(ranks, example, *SHORT, "--json", "--dtype", "float32")[-1])
    assert result["ranks"] == ranks
    assert result["accuracy"] >= 0.95
    assert all(len(set(epoch)) == 1 for epoch in result["hashes"])


@pytest.mark.parametrize("example", ["01_hello.py", "02_send_recv.py", "digits_numpy.py"])
def test_plain_python_is_a_world_of_one(example: str) -> None:
    environment = {
        name: value
        for name, value in ENVIRONMENT.items()
        if not name.startswith(("RANK", "WORLD_", "LOCAL_"))
    }
    done = subprocess.run(
        [sys.executable, EXAMPLES / example], capture_output=True, text=True, timeout=60, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_numpy_example_does_not_import_torch(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise AssertionError('torch was imported')\n")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run(
        [sys.executable, EXAMPLES / "digits_numpy.py", "--epochs", "1"],
        capture_output=True, text=True, timeout=60, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_examples_are_short() -> None:
    for path in EXAMPLES.glob("*.py"):
        assert len(path.read_text().splitlines()) < 80, path
