"""Plans for thousands of ranks: checked for 8,192, simulated on data for 10,240 ranks.

Takes minutes: `scripts/test full`. Prints each limit with its figure. The limits are processor
seconds, which do not depend on the other load of the machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Limit:
    """A command of `pycollective plan` and its limits."""

    words: str
    seconds: float
    nbytes: int


LIMITS = [
    Limit("check --collective allreduce --algorithm double_binary_tree -n 8192", 60, 1 << 30),
    Limit("check --collective allreduce --algorithm recursive_doubling -n 8192", 60, 1 << 30),
    Limit("check --collective allreduce --algorithm ring -n 8192 --split 1", 300, 1 << 30),
    Limit("simulate allreduce --algorithm double_binary_tree -n 10240", 10, 2 << 30),
    Limit("simulate allreduce --algorithm ring -n 10240", 30, 2 << 30),
]


def measure(words: str) -> tuple[int, float, int]:
    """Returns the exit code, the processor seconds and the peak memory of one command."""
    child = subprocess.Popen([sys.executable, "-m", "pycollective", "plan", *words.split()])
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return child.returncode, usage.ru_utime + usage.ru_stime, usage.ru_maxrss << 10


def main() -> int:
    """Returns 1 if a limit is missed."""
    missed = 0
    for limit in LIMITS:
        code, seconds, nbytes = measure(limit.words)
        held = code == 0 and seconds <= limit.seconds and nbytes <= limit.nbytes
        missed += not held
        print(
            f"{'ok' if held else 'MISSED'}  plan {limit.words}: exit code {code}, {seconds:.1f} s of processor"
            f" (limit {limit.seconds}), {nbytes >> 20} MiB (limit {limit.nbytes >> 20})",
            flush=True,
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
