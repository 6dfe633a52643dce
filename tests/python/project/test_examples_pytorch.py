"""examples/pytorch, as users run them: trained as well as by one process, resumed bit for bit.

Some run on two machines. Daily one training in three is made, and one program is started by one of
the methods of users; the rest is on forked ranks.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import programs
import pytest
import sampled
from arrays import torch
from launchers import free_port
from sampled import FULL

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(torch is None, reason="PyTorch is not installed"),
]
FOLDER = Path(__file__).resolve().parents[3] / "examples" / "pytorch"
RUN = [sys.executable, "-m", "pycollective", "run", "--no-prefix"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}  # several would wait for each other on a busy machine
SEEDS = ("--seeds", *sampled.some(("0", "1", "2"), 1, of="trainings"))


def begin(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)


def end(process: subprocess.Popen[str]) -> list[str]:
    try:
        out, err = process.communicate(timeout=150)
    finally:
        process.kill()
    assert process.returncode == 0, err
    return out.splitlines()


def run(*words: str) -> list[str]:
    return end(begin(*words))


def train(ranks: int, *arguments: str) -> list[dict[str, Any]]:
    script = str(FOLDER / "train.py")
    if FULL:
        said = run(*RUN, "-n", str(ranks), script, "--json", *arguments)
    else:
        said = programs.run(ranks, script, "--json", *arguments)[0].splitlines()
    result = json.loads(said[-1])
    assert result["ranks"] == ranks
    runs: list[dict[str, Any]] = result["runs"]
    return runs


@pytest.fixture(scope="module")
def alone() -> list[dict[str, Any]]:
    return train(1, *SEEDS)


@pytest.mark.parametrize("ranks", [2, 4] if FULL else [2])
def test_ranks_train_as_well_as_one_process_with_each_seed(alone: list[dict[str, Any]], ranks: int) -> None:
    for one, several in zip(alone, train(ranks, *SEEDS), strict=True):
        assert one["accuracy"] >= 0.88
        assert abs(several["accuracy"] - one["accuracy"]) <= 0.01


def test_a_run_that_is_resumed_within_an_epoch_equals_one_that_was_not_interrupted(tmp_path: Path) -> None:
    (whole,) = train(2, "--epochs", "2", "--checkpoint", str(tmp_path / "whole"))
    resumed = ("--epochs", "2", "--checkpoint", str(tmp_path / "resumed"))
    assert train(2, *resumed, "--stop-after", "22") == [
        {}
    ]  # an epoch has 15 batches; the last save was at 20
    assert train(2, *resumed) == [whole]


def test_the_program_on_torch_distributed_learns() -> None:
    assert accuracy_of(programs.run(2, FOLDER / "train_ddp.py")[0]) >= 0.85


def test_the_parameter_server_learns_from_every_worker() -> None:
    assert programs.run(3, FOLDER / "parameter_server.py")[0] == "[1.0, 2.0, 3.0] after 400 pushes\n"


def accuracy_of(said: str) -> float:
    """Returns the last word of what train_ddp.py prints."""
    return float(said.split()[-1])


def two_machines_train_as_one() -> None:
    """Two launchers on this machine represent two machines.

    test_launch_machines has two network namespaces.
    """
    each = 2 if FULL else 1
    (one,) = train(2 * each, "--epochs", "1")
    master = ("--nnodes", "2", "--master", f"127.0.0.1:{free_port()}", "-n", str(each))
    script = (str(FOLDER / "train.py"), "--json", "--epochs", "1")
    second = begin(*RUN, *master, "--node-rank", "1", *script)
    first = begin(*RUN, *master, "--node-rank", "0", *script)
    said = end(first)
    assert end(second) == []
    (two,) = json.loads(said[-1])["runs"]
    assert abs(two["accuracy"] - one["accuracy"]) <= 0.01


def our_launcher_starts_the_program_on_torch_distributed() -> None:
    (said,) = run(*RUN, "-n", "2", str(FOLDER / "train_ddp.py"))
    assert accuracy_of(said) >= 0.85


def torchrun_starts_the_program_on_torch_distributed() -> None:
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2")
    (said,) = run(*torchrun, str(FOLDER / "train_ddp.py"))
    assert accuracy_of(said) >= 0.85


def a_program_starts_its_ranks_itself() -> None:
    assert run(sys.executable, str(FOLDER / "spawn.py"))[-1] == "[6.0, 6.0]"


def our_launcher_starts_the_parameter_server() -> None:
    (said,) = run(*RUN, "-n", "3", str(FOLDER / "parameter_server.py"))
    assert said == "[1.0, 2.0, 3.0] after 400 pushes"


WAYS = (
    two_machines_train_as_one,
    our_launcher_starts_the_program_on_torch_distributed,
    torchrun_starts_the_program_on_torch_distributed,
    a_program_starts_its_ranks_itself,
    our_launcher_starts_the_parameter_server,
)


@pytest.mark.daily(1)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_as_users_start_them(way: Callable[[], None]) -> None:
    way()


def test_the_examples_are_short() -> None:
    for path in FOLDER.glob("*.py"):
        assert len(path.read_text().splitlines()) <= 90, path


def test_one_line_of_the_program_on_torch_distributed_is_ours() -> None:
    ours = [line for line in (FOLDER / "train_ddp.py").read_text().splitlines()[5:] if "pycollective" in line]
    assert len(ours) == 1
    assert re.match(r'dist\.init_process_group\("pycollective"\)', ours[0])
