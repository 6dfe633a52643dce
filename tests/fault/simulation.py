"""The simulated control plane: many seeds end well, and mistakes planted on purpose are found."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from .limits import Ledger, Limit, Trial

NAME = "simulation"
LIMITS = (
    Limit("time for all seeds", "time", 300.0, "max"),
    Limit("seeds that end badly, planted mistakes not found", "seeds"),
    Limit("hangs and crashes", "hang"),
)
FULL, QUICK = 5000, 300
PLANTS = ("lost-notice", "stale-epoch")
DEADLINE_S = 600
ROOT = Path(__file__).parent.parent.parent


def binary() -> Path | None:
    found = sorted(ROOT.glob("build/*/tests/cpp/control_sim"), key=lambda path: path.stat().st_mtime)
    return found[-1] if found else None


def run(program: Path, plant: str, seeds: int, ledger: Ledger) -> None:
    arguments = ["--plant", plant] if plant else []
    began = time.monotonic()
    try:
        ended = subprocess.run(
            [program, "--seeds", str(seeds), *arguments],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        ledger.fault("hang", f"control_sim {' '.join(arguments)} did not end within {DEADLINE_S} s")
        return
    text = ended.stdout + ended.stderr
    if plant:
        ledger.require("seeds", ended.returncode == 1 and "--seed" in text, f"{plant} was not found: {text}")
        return
    ledger.measure("time", time.monotonic() - began)
    ledger.require("seeds", ended.returncode == 0, text)


@contextlib.contextmanager
def trials(quick: bool, seed: int) -> Iterator[Iterator[Trial]]:
    del seed  # it has seeds of its own, and each is a world
    program = binary()
    if program is None:
        print("simulation: SKIPPED, control_sim is not built: run `scripts/build test`", flush=True)
        yield iter(())
        return
    seeds = QUICK if quick else FULL
    yield (Trial(plant or "seeds", partial(run, program, plant, seeds)) for plant in ("", *PLANTS))
