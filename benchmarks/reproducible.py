"""The cost of reproducible sums: medians and 99th percentiles of interleaved calls on this host."""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable

import numpy as np

import pycollective as pc
from pycollective import testing
from pycollective.launching.run_command import positive

RANKS = (2, 4)
SIZES = {"1 KiB": 1 << 10, "64 KiB": 1 << 16, "4 MiB": 1 << 22}
MODES = ("plain", "shape", "world", "reduce_scatter", "reduce_scatter shape")
LEAST_ROUNDS = 100


def calls(nbytes: int) -> dict[str, Callable[[], object]]:
    """Returns the calls on float32 by mode. In "world" each rank has one leaf."""
    x = np.ones(nbytes // 4, np.float32)
    out, part = np.empty_like(x), np.empty(x.size // pc.size(), np.float32)
    return {
        "plain": lambda: pc.allreduce(x, out=out),
        "shape": lambda: pc.allreduce(x, out=out, reproducible="shape"),
        "world": lambda: pc.allreduce(x[np.newaxis], reproducible="world"),
        "reduce_scatter": lambda: pc.reduce_scatter(x, out=part),
        "reduce_scatter shape": lambda: pc.reduce_scatter(x, out=part, reproducible="shape"),
    }


def measured(nbytes: int, rounds: int) -> dict[str, list[float]]:
    """Returns the times of every round in us by mode, on this rank.

    Each round makes a call of every mode, in another order.
    """
    made = calls(nbytes)
    times: dict[str, list[float]] = {mode: [] for mode in MODES}
    order = random.Random(nbytes)  # the same on all ranks
    for turn in range(rounds + rounds // 10):
        for mode in order.sample(MODES, len(MODES)):
            pc.barrier()
            began = time.perf_counter()
            made[mode]()
            if turn >= rounds // 10:
                times[mode].append((time.perf_counter() - began) * 1e6)
    return times


def row(name: str, ranks: int, times: dict[str, list[float]]) -> str:  # noqa: D103
    medians = {mode: sorted(each)[len(each) // 2] for mode, each in times.items()}
    cells = []
    for mode in MODES:
        last = sorted(times[mode])[len(times[mode]) * 99 // 100]
        usual = medians["reduce_scatter" if mode.startswith("reduce_scatter") else "plain"]
        cells.append(f"{medians[mode]:.0f} / {last:.0f} ({medians[mode] / usual:.2f})")
    return f"| {name} | {ranks} | {' | '.join(cells)} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "rounds", nargs="?", type=positive, default=2000, help="of the smallest size (default 2000)"
    )
    most = parser.parse_args().rounds
    print(f"| Array | Ranks | {' | '.join(MODES)} |\n|---|---|{'---|' * len(MODES)}")
    for count in RANKS:
        for size_name, size in SIZES.items():
            most_of_size = max(LEAST_ROUNDS, most // (1 + size // (1 << 15)))
            print(
                row(size_name, count, testing.run(measured, count, size, most_of_size, timeout_s=300)[0]),
                flush=True,
            )
