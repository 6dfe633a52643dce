"""The best performance of this machine, measured by `pycollective-bench --ceilings` in this run."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

LIMIT_S = 300.0


@dataclass(frozen=True)
class RooflinePoint:
    """memcpy, add (a += b) and tcp (loopback, one way) by size; futex (waking a thread)."""

    name: str
    nbytes: int
    median_s: float
    p99_s: float


def measure(sizes: Sequence[int]) -> list[RooflinePoint] | str:
    """Returns all of them, or the reason why there are none."""
    from pycollective.tools.bench_binary import BINARY

    command = [str(BINARY), "--ceilings", "--json", f"--sizes={','.join(map(str, sizes))}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{BINARY}: {error}"
    if done.returncode != 0:
        return done.stderr.strip()
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return [
        RooflinePoint(each["ceiling"], each["size"], each["p50_us"] / 1e6, each["p99_us"] / 1e6)
        for each in found
    ]
