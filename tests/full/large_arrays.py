"""Arrays of more than 2^31 elements, on two ranks: every element is right.

Needs 6 GiB and a minute: `scripts/test full`. Prints each call with its time. The arrays have
elements of one byte, and are filled and checked in slices.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import pycollective as pc
from pycollective import testing

COUNT = (1 << 31) + 17
PERIOD = 61  # divides no power of two, so misplaced elements are found
SLICE = 61 << 20
NEEDED_NBYTES = 6 << 30  # two arrays of 2 GiB, and two gibibytes for everything else
CALL_S = 300.0


def numbers(rank: int) -> Any:
    """Returns the values of that rank at each place of a slice. Sums of two fit into a byte."""
    return np.resize(np.arange(PERIOD, dtype=np.int8) * (rank + 1) % PERIOD, SLICE).astype(np.int8)


def fill(x: Any, pattern: Any) -> None:
    for begin in range(0, len(x), SLICE):
        x[begin : begin + SLICE] = pattern[: min(SLICE, len(x) - begin)]


def check(what: str, x: Any, pattern: Any) -> None:
    for begin in range(0, len(x), SLICE):
        piece = x[begin : begin + SLICE]
        wrong = np.flatnonzero(piece != pattern[: len(piece)])
        if len(wrong):
            at = int(wrong[0])
            raise AssertionError(f"{what}: element {begin + at} is {piece[at]} instead of {pattern[at]}")


def timed(what: str, call: Callable[[], object]) -> str:
    pc.barrier(timeout=CALL_S)  # the ranks fill and check at different speeds
    began = time.monotonic()
    call()
    return f"{what}: {time.monotonic() - began:.1f} s"


def every_call() -> list[str]:
    """Runs on one rank. Raises at the first wrong element."""
    rank, peer = pc.rank(), 1 - pc.rank()
    said = []
    x = np.empty(COUNT, np.int8)

    fill(x, numbers(rank))
    said.append(timed(f"allreduce of {COUNT} int8", lambda: pc.allreduce(x, timeout=CALL_S)))
    check("allreduce", x, numbers(0) + numbers(1))

    fill(x, numbers(rank))
    said.append(timed(f"broadcast of {COUNT} int8", lambda: pc.broadcast(x, 1, timeout=CALL_S)))
    check("broadcast", x, numbers(1))

    half = COUNT // 2 + 1
    counts = [half, COUNT - half]
    cut = half * rank
    mine, other = x[cut : cut + counts[rank]], x[half * peer :][: counts[peer]]
    fill(mine, numbers(rank))
    other[:] = -1
    said.append(
        timed(
            f"allgather to {COUNT} int8",
            lambda: pc.allgather(mine, out=x, counts=counts, timeout=CALL_S),
        )
    )
    check("allgather", x[:half], numbers(0))
    check("allgather", x[half:], numbers(1))
    return said


def available_nbytes() -> int:
    """Returns the number of bytes that are available without swapping."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return 0


def main() -> int:
    """Returns 1 if something is wrong or there is too little memory to find out."""
    available = available_nbytes()
    if available < NEEDED_NBYTES:
        print(
            f"MISSED  arrays of more than 2^31 elements were not tried: they take {NEEDED_NBYTES >> 20} MiB, and "
            f"{available >> 20} MiB are available. Run tests/full/large_arrays.py on a larger machine"
        )
        return 1
    try:
        said = testing.run(every_call, 2, timeout_s=4 * CALL_S)[0]
    except testing.WorldFailed as error:
        print(f"MISSED  {error}")
        return 1
    for line in said:
        print(f"ok  {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
