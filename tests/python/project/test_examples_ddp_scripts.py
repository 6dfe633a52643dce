"""examples/ddp_scripts: every flag does what its name says, on any number of ranks.

The table of the flags is true, too. Daily two of three trainings are made, on forked ranks. The
full run makes all, and also starts ranks by hand.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import programs
import pytest
import sampled
from sampled import FULL

import pycollective as pc
from pycollective.cli import make_parser
from pycollective.launching.environment import free_port

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "ddp_scripts"
ENVIRONMENT = {
    **{
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("RANK", "WORLD_", "MASTER_"))
    },
    "OMP_NUM_THREADS": "1",  # several would wait for each other on a busy machine
}
SHORT = ("--epochs", "3", "--sync-bn")
EXACT = ("--network", "perceptron", "--dtype", "float64", "--checkpoint")
SEEDS = sampled.some(("0", "1", "2"), 2, of="trainings with DDP")
LEARNED = 0.85  # of the digits; guessing gives 0.1
pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("torch", "sklearn")),
        reason="torch or scikit-learn is not installed",
    ),
]


def train(ranks: int, *flags: str) -> list[str]:
    """Returns what it prints."""
    if not FULL:
        return programs.run(ranks, EXAMPLE / "train.py", "--json", *flags)[0].splitlines()
    launcher = [sys.executable, "-m", "pycollective", "run", "-n", str(ranks), "--no-prefix"]
    done = subprocess.run(
        [*launcher, EXAMPLE / "train.py", "--json", *flags],
        capture_output=True, text=True, timeout=100, env=ENVIRONMENT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def runs_of(lines: list[str], ranks: int) -> list[dict[str, float]]:
    result = json.loads(lines[-1])
    assert result["ranks"] == ranks
    return result["runs"]


@functools.cache
def each_seed(ranks: int) -> list[dict[str, float]]:
    """Trains in float64, because in float32 the last bit of a maximum can change the result."""
    return runs_of(train(ranks, *SHORT, "--dtype", "float64", "--seed", *SEEDS), ranks)


@pytest.mark.parametrize("ranks", [2, 4] if FULL else [2])
def test_accuracy_with_each_seed_is_that_of_one_process(ranks: int) -> None:
    for one, many in zip(each_seed(1), each_seed(ranks), strict=True):
        assert one["top1"] > LEARNED
        assert many["top1"] == pytest.approx(one["top1"], abs=0.01)
        assert many["loss"] == pytest.approx(one["loss"], abs=1e-9)  # SyncBN: the slices do not matter


def test_seeds_are_different_trainings() -> None:
    assert len({run["loss"] for run in each_seed(1)}) == len(SEEDS) > 1


@functools.cache
def mixed() -> list[str]:
    """All flags at once, as the line of an old launcher may have them."""
    old = (
        "--ip",
        "192.0.2.1",
        "--port",
        "1",
        "--local_rank=0",
        "--batch_size",
        "96",
        "--grad_accu_steps",
        "2",
    )
    return train(2, *SHORT, "--amp", "--seed", SEEDS[0], *old)


def test_mixed_precision_learns_too() -> None:
    (run,) = runs_of(mixed(), 2)
    assert run["top1"] > LEARNED
    assert run["loss"] != each_seed(1)[0]["loss"]


def test_half_precision_learns_behind_a_scaler() -> None:
    (run,) = runs_of(train(1, "--amp", "float16", "--network", "perceptron", "--epochs", "3"), 1)
    assert run["top1"] > 0.7


def test_a_launcher_wins_over_ip_and_port_and_old_flags_are_accepted() -> None:
    assert mixed()[0] == "--ip and --port are ignored: they are for ranks started by hand"


@dataclass(frozen=True)
class Exact:
    """The same training in float64, made twice."""

    whole: dict[str, Any]  # parameters: one rank, a pass for each batch
    passes: dict[str, Any]  # two ranks, five passes for each batch, after an epoch of one rank
    said: list[list[str]]  # by the two ranks


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Exact:
    folder = tmp_path_factory.mktemp("checkpoints")
    for name in ("whole", "passes"):
        (folder / name).mkdir()
    train(1, *EXACT, str(folder / "whole"), "--epochs", "2")
    train(1, *EXACT, str(folder / "passes"), "--epochs", "1")
    # 48 samples of each rank make passes of 10, 10, 10, 9 and 9.
    flags = (*EXACT, str(folder / "passes"), "--epochs", "2", "--grad-accu-steps", "5")
    said = [each.splitlines() for each in programs.run(2, EXAMPLE / "train.py", "--json", *flags)]
    return Exact(parameters(folder / "whole"), parameters(folder / "passes"), said)


def started(*flags: str, **variables: str) -> subprocess.Popen[str]:
    """Starts it without a launcher."""
    command = [sys.executable, EXAMPLE / "train.py", "--json", *flags]
    return subprocess.Popen(command, stdout=subprocess.PIPE, env={**ENVIRONMENT, **variables}, text=True)


def outputs_of(*processes: subprocess.Popen[str]) -> list[list[str]]:
    try:
        said = [process.communicate(timeout=100)[0].splitlines() for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * len(processes)
    return said


def parameters(folder: Path) -> dict[str, Any]:
    pc.init()
    try:
        return pc.checkpoint.load(folder / "0.ckpt")["model"]
    finally:
        pc.shutdown()


def test_gradient_accumulation_gives_the_parameters_of_the_big_batch(exact: Exact) -> None:
    assert len(exact.whole) == 4
    for name, expected in exact.whole.items():
        np.testing.assert_allclose(exact.passes[name], expected, rtol=0, atol=1e-10)


def test_it_goes_on_from_its_checkpoint_on_another_number_of_ranks(exact: Exact) -> None:
    assert [line.split(":")[0] for line in exact.said[0] if line.startswith("epoch")] == ["epoch 2"]


@pytest.mark.daily(0)
def test_ranks_started_by_hand_connect_at_ip_and_port(tmp_path: Path) -> None:
    flags = (*EXACT, str(tmp_path), "--epochs", "1", "--ip", "127.0.0.1", "--port", str(free_port()))
    said = outputs_of(*(started(*flags, RANK=str(rank), WORLD_SIZE="2") for rank in range(2)))
    runs_of(said[0], 2)
    assert said[1] == []


def test_threads_give_the_gradients_of_the_whole_batch_and_leave_running_means_to_the_first() -> None:
    import torch

    spec = importlib.util.spec_from_file_location("ddp_scripts_threads", EXAMPLE / "threads.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)).double()
    x, y = torch.randn(7, 4).double(), torch.arange(7) % 3
    torch.nn.functional.cross_entropy(net(x), y).backward()
    expected = [p.grad for p in net.parameters()]
    for threads in (1, 2, 3, 9):
        net.zero_grad()
        model = module.ThreadedDataParallel(net, threads)
        torch.nn.functional.cross_entropy(model(x), y).backward()
        for p, gradient in zip(net.parameters(), expected, strict=True):
            torch.testing.assert_close(p.grad, gradient, rtol=0, atol=1e-12)
    normalized = torch.nn.BatchNorm1d(4, momentum=1.0).double()
    module.ThreadedDataParallel(normalized, 2)(x)
    torch.testing.assert_close(normalized.running_mean, x[:4].mean(0))


def rows() -> list[tuple[str, str]]:
    """Returns the rows of the table with the name elsewhere and the name here."""
    text = (EXAMPLE / "README.md").read_text().split("## Line by line\n\n")[1].split("\n\nTwo facts")[0]
    items = (
        " ".join(item.split()).split(" - Here: ") for item in re.split(r"\n+- ", text.removeprefix("- "))
    )
    return [(there, here) for there, here in items]


def spans() -> list[str]:
    return [span for _, here in rows() for span in re.findall(r"`([^`]+)`", here)]


def test_every_name_of_the_tables_right_side_exists() -> None:
    names = [name for span in spans() for name in re.findall(r"\b(?:pc|torch)(?:\.\w+)+", span)]
    assert len(rows()) == 24
    assert len(names) > 20
    import torch

    for name in names:
        functools.reduce(getattr, name.split(".")[1:], {"pc": pc, "torch": torch}[name.split(".")[0]])


def test_every_call_of_the_tables_right_side_can_be_parsed_and_launchers_accept_their_lines() -> None:
    for span in spans():
        if span.startswith("pycollective "):
            make_parser().parse_args(span.split()[1:])
        elif span.startswith("pc."):
            ast.parse(span.replace("...", ""))


def test_every_flag_of_the_tables_right_side_is_one_of_the_script() -> None:
    help_text = (EXAMPLE / "start.py").read_text()
    flags = {flag for span in spans() if "pycollective" not in span for flag in re.findall(r"--[\w-]+", span)}
    assert {"--amp", "--grad-accu-steps", "--ip", "--port", "--checkpoint"} <= flags
    for flag in flags:
        assert f'"{flag}"' in help_text, flag


def test_files_are_short_and_each_is_in_the_readme() -> None:
    readme = (EXAMPLE / "README.md").read_text()
    for path in EXAMPLE.glob("*.py"):
        assert len(path.read_text().splitlines()) < 80, path
        assert f"[{path.name}]({path.name})" in readme
