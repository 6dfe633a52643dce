"""Trainers that know backends by name train on pycollective with PYCOLLECTIVE_REPLACES alone.

They have the losses of gloo. The programs in foreign_trainers/ do not know pycollective. They run
where the trainers are installed: the full run installs them.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).with_name("foreign_trainers")
DEADLINE_S = 150.0
SAID = "torch.distributed's backend gloo is pycollective here"
NEEDED = {
    "accelerate_loop": "accelerate",
    "ignite_parallel": "ignite",
    "lightning_trainer": "lightning",
    "transformers_trainer": "transformers",
}
pytestmark = pytest.mark.timeout(2 * DEADLINE_S + 30)


def losses(program: str, folder: Path, *, replaces: str) -> tuple[list[float], str]:
    """Returns what rank 0 of two has printed, and all standard error."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*launcher, str(HERE / f"{program}.py")],
        env={
            **os.environ,
            "PYCOLLECTIVE_REPLACES": replaces,
            "FOLDER": str(folder),
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "HF_HUB_OFFLINE": "1",
        },
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("losses ")]
    assert len(lines) == 1, done.stdout
    return [float(word) for word in lines[0]], done.stderr


@pytest.mark.parametrize("program", sorted(NEEDED))
def test_a_trainer_has_the_losses_that_it_has_on_gloo(program: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(NEEDED[program]) is None:
        pytest.skip(f"{NEEDED[program]} is not installed: scripts/test full installs it")
    expected, theirs = losses(program, tmp_path, replaces="")
    found, ours = losses(program, tmp_path, replaces="gloo")
    assert found == pytest.approx(expected, abs=1e-6)
    assert SAID not in theirs
    assert ours.count(SAID) == 1, ours
