"""The examples for users of MegEngine, Paddle and Jittor: trained alike on any number of ranks.

Daily one training in three is made, by one process and on one number of ranks, which are forked.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import launchers
import numpy as np
import programs
import pytest
import sampled
import test_coming_from

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
FOLDERS = ("megengine", "paddle", "jittor")
NUMBER = re.compile(r"\d+\.\d+")
# One thread each, because several would wait for each other on a busy machine.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
pytestmark = pytest.mark.timeout(300)
SEEDS = sampled.some(("0", "1", "2"), 1, of="trainings elsewhere")
Start = Callable[[int, launchers.Program], list[launchers.Command]]


def by_itself(ranks: int, program: launchers.Program) -> list[launchers.Command]:
    return launchers.alone([sys.executable, *program, "--ranks", str(ranks)])


def plain(_: int, program: launchers.Program) -> list[launchers.Command]:
    return launchers.alone([sys.executable, *program])


def under_mpirun(ranks: int, program: launchers.Program) -> list[launchers.Command]:
    """Uses whichever mpirun there is, else our own launcher."""
    mpi = (each for each in launchers.LAUNCHERS if each.name in ("openmpi-4", "openmpi-5", "mpich"))
    there = [each.start for each in mpi if each.missing() is None]
    return [*there, launchers.pycollective][0](ranks, program)


def spoken(start: Start, ranks: int, program: launchers.Program) -> str:
    """Returns what rank 0 prints."""
    running = [
        subprocess.Popen(
            command.words,
            env={**ENVIRONMENT, **command.env},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for command in start(ranks, program)
    ]
    try:
        said = [each.communicate(timeout=140) for each in running]
    finally:
        for each in running:
            each.kill()
            each.wait()
    for each, (_, errors) in zip(running, said, strict=True):
        assert each.returncode == 0, errors
    return said[0][0]


@dataclass(frozen=True)
class Example:
    path: str
    worlds: tuple[tuple[Start, int], ...]  # the first one is a single process
    options: tuple[str, ...] = ()  # of Python, in all worlds but the first
    least: float = 0.9  # accuracy
    tolerance: float = 1e-6  # relative, of the losses of all epochs
    needs: str | None = "torch"

    @property
    def worlds_today(self) -> list[tuple[Start, int]]:
        return [self.worlds[0], *sampled.some(self.worlds[1:], 1, of=self.path)]


# In float32, sums in different orders drift apart from step to step.
OURS = launchers.pycollective
TRAIN = Example("megengine/train.py", ((by_itself, 1), (by_itself, 2), (by_itself, 4)), needs=None)
MODEL_PARALLEL = Example("megengine/model_parallel.py", ((by_itself, 1), (by_itself, 2)), least=0.85)
RESNET = Example("paddle/train.py", ((plain, 1), (launchers.paddle_variables, 2)), least=0.98, tolerance=0.05)
TENSORS = Example("paddle/tensors.py", ((plain, 1), (OURS, 2)), tolerance=0.01, needs="paddle")
UNMODIFIED = Example("jittor/train.py", ((plain, 1), (under_mpirun, 2)), ("-m", "pycollective.torch.auto"))
EXPLICIT = Example("jittor/explicit.py", ((plain, 1), (under_mpirun, 4)))


@functools.cache
def outputs(example: Example) -> list[str]:
    """Returns what an example prints in each world, which trains with all seeds in one launch."""
    if example.needs and importlib.util.find_spec(example.needs) is None:
        pytest.skip(f"{example.needs} is not installed")

    def output(world: tuple[Start, int]) -> str:
        start, ranks = world
        options = () if world is example.worlds[0] else example.options
        program = [str(EXAMPLES / example.path), "--seeds", *SEEDS, "--json"]
        if sampled.FULL:
            return spoken(start, ranks, [*options, *program])
        if start is by_itself:
            return programs.starting_ranks(*program, "--ranks", str(ranks))
        return programs.run(ranks, *program, auto=bool(options))[0]

    return list(map(output, example.worlds_today))


def results(example: Example) -> list[dict[str, Any]]:
    """Returns the last line of each output."""
    return [json.loads(output.splitlines()[-1]) for output in outputs(example)]


def of(*examples: Example) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("example", examples, ids=lambda example: example.path)


@of(TRAIN, MODEL_PARALLEL, RESNET, TENSORS, UNMODIFIED, EXPLICIT)
def test_any_number_of_ranks_trains_to_the_accuracy_of_one_process(example: Example) -> None:
    alone, *together = (result["accuracies"] for result in results(example))
    assert len(alone) == len(SEEDS) * (2 if example is TRAIN else 1)
    assert min(alone) >= example.least
    for accuracies in together:
        np.testing.assert_allclose(accuracies, alone, rtol=0, atol=0.01)


@of(RESNET, TENSORS, UNMODIFIED, EXPLICIT)
def test_any_number_of_ranks_has_the_losses_of_one_process(example: Example) -> None:
    lines = ["\n".join(output.splitlines()[:-1]) for output in outputs(example)]
    alone, *together = (np.array(NUMBER.findall(each), float) for each in lines)
    assert len(alone) >= 3 * len(SEEDS)
    for losses in together:
        np.testing.assert_allclose(losses, alone, rtol=example.tolerance)


@of(TRAIN, MODEL_PARALLEL, RESNET, TENSORS, EXPLICIT)
def test_the_ranks_were_there(example: Example) -> None:
    assert [result["ranks"] for result in results(example)] == [ranks for _, ranks in example.worlds_today]


def test_a_sum_of_shares_is_a_mean_of_means() -> None:
    for result in results(TRAIN):
        averages, shares = np.split(np.array(result["accuracies"]), 2)
        np.testing.assert_allclose(averages, shares, rtol=0, atol=0.003)


def test_an_unmodified_script_knows_nothing_of_us() -> None:
    assert "pycollective" not in EXAMPLES.joinpath(UNMODIFIED.path).read_text().partition('"""\n\n')[2]


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_the_tables_say_can_be_written(folder: str) -> None:
    text = EXAMPLES.joinpath(folder, "README.md").read_text()
    rows = [line.strip("|").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) > 10
    for _, *here in rows[1:]:
        for span in test_coming_from.spans(" ".join(here)):
            test_coming_from.check(span)


@pytest.mark.parametrize("folder", FOLDERS)
def test_its_commands_and_pages_exist(folder: str) -> None:
    readme = EXAMPLES / folder / "README.md"
    text = readme.read_text()
    for path in re.findall(r"\]\(([^)]+)\)", text):
        assert (readme.parent / path).exists(), path
    named = set(re.findall(r"examples/\w+/\w+\.py", text))
    assert named == {f"examples/{folder}/{each.name}" for each in readme.parent.glob("*.py")}


def test_examples_are_short() -> None:
    for folder in FOLDERS:
        for path in (EXAMPLES / folder).glob("*.py"):
            assert len(path.read_text().splitlines()) < 80, path
