"""The limits of this machine's performance, measured by `pycollective-bench --ceilings`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

LIMIT_S = 300.0


@dataclass(frozen=True)
class RooflinePoint:
    """A limit: memcpy, add (a += b) or tcp (loopback, one way) of a size, or futex (a wake-up)."""

    name: str
    nbytes: int
    median_s: float
    p99_s: float


def measure(sizes: Sequence[int]) -> list[RooflinePoint] | str:
    """Returns all points, or the reason why they could not be measured."""
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
