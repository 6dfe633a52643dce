"""The quick form of the fault-injection suite under pytest: one test for each family of limits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FAMILIES = (
    "mismatch",
    "death",
    "interruption",
    "stopping",
    "absence",
    "simulation",
    "threads",
    "leaving",
    "connection_flood",
)
DEADLINE_S = 100
TESTS = Path(__file__).parent.parent


@pytest.mark.parametrize("family", FAMILIES)
def test_every_limit_holds(family: str) -> None:
    command = [sys.executable, "-m", "fault", "--quick", "--only", family]
    env = {**os.environ, "PYTHONPATH": str(TESTS)}
    ended = subprocess.run(
        command,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
