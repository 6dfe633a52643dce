"""Run programs: print their names, and keep their output in case they fail."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Failed(Exception):
    """A step failed. The text names the step and the remedy."""


def say(text: str) -> None:
    print(f"wheel: {text}", flush=True)


def run(
    *command: str | Path, where: Path | None = None, env: Mapping[str, str] | None = None, show: bool = False
) -> str:
    """Return the program's standard output. With `show` it goes to the terminal instead."""
    done = subprocess.run(
        command,
        cwd=where,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=None if show else subprocess.PIPE,
        stderr=None if show else subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        sys.stdout.write(done.stdout or "")
        raise Failed(f"exit code {done.returncode} of {shlex.join(map(str, command))}")
    return done.stdout or ""
