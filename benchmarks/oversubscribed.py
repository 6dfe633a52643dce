"""A small allreduce with more ranks than cores, and with a rank that is stopped for a moment.

Usage: python benchmarks/oversubscribed.py

Times are those of an allreduce of 8 bytes, on rank 0.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import time

import numpy as np

import pycollective as pc
from pycollective import testing

CALLS, BLOCKS = 500, 40
COMPUTE_S = 50e-6
STOPPED_S = 0.1


def compute(seconds: float) -> None:
    """Uses a core for `seconds` of CPU time, even if the thread is preempted meanwhile."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def calls(compute_s: float) -> list[float]:
    """Returns the seconds per call for each block, including the computation before each call."""
    x = np.ones(2, np.float32)
    took = []
    for _ in range(BLOCKS):
        began = time.perf_counter()
        for _ in range(CALLS):
            if compute_s:
                compute(compute_s)
            pc.allreduce(x, "max")
        took.append((time.perf_counter() - began) / CALLS)
    return took[BLOCKS // 8 :]


def beside_a_stop() -> float:
    """Returns the seconds of the longest call while the last rank is stopped once."""
    x = np.ones(2, np.float32)
    goes_on = np.ones(1, np.int32)
    stopper = None
    if pc.rank() == pc.size() - 1:
        me = os.getpid()
        script = f"sleep 0.3; kill -STOP {me}; sleep {STOPPED_S}; kill -CONT {me}; sleep 0.2"
        stopper = subprocess.Popen(["sh", "-c", script])
    longest = 0.0
    while goes_on[0]:
        for _ in range(1000):
            began = time.perf_counter()
            pc.allreduce(x, "max")
            longest = max(longest, time.perf_counter() - began)
        goes_on[0] = stopper is None or stopper.poll() is None
        pc.allreduce(goes_on, "min")
    return longest


def main() -> None:  # noqa: D103
    cores = len(os.sched_getaffinity(0))
    print(f"{cores} usable cores; median and slowest block, each of {CALLS} calls")
    for ranks in (2, 4, 8):
        took = testing.run(calls, ranks, 0.0)[0]
        print(f"{ranks} ranks, calls in a row: {statistics.median(took) * 1e6:.2f} {max(took) * 1e6:.2f} us")
    for ranks in (2, 4):
        took = testing.run(calls, ranks, COMPUTE_S)[0]
        least = COMPUTE_S * max(1, ranks / cores)
        print(
            f"{ranks} ranks, {COMPUTE_S * 1e6:.0f} us of computing before each: "
            f"{statistics.median(took) / least:.3f} {max(took) / least:.3f} of the computing alone"
        )
    for ranks in (2, 4):
        longest = testing.run(beside_a_stop, ranks)[0]
        print(
            f"{ranks} ranks, one stopped for {STOPPED_S * 1e3:.0f} ms: the longest call takes {longest * 1e3:.1f} ms"
        )


if __name__ == "__main__":
    main()
