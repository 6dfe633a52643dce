"""The speed at which one core reduces two arrays into a third: GB/s of the result.

Usage: python benchmarks/kernels.py [--all] [rounds]

Without --all it measures each dtype with sum, and float32 with every operation. Each round measures
all rows of a size, and the best of all rounds counts, because other programs can only make a row
slower. Each row also has two ratios: to the sum of float32, at 64 and 512 KiB, and to the baseline,
which is NumPy's `add` of float32 in the same run, at 16 MiB. `<` marks a row below 0.8 of that
baseline. Needs ml_dtypes.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import pycollective as pc
from pycollective import _core

SIZES = (64 << 10, 512 << 10, 16 << 20)
DTYPES = (
    *("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2"),
)
SUMS = ("sum", "prod", "min", "max", "avg", pc.scaled("sum", 0.5))
OPS = (*SUMS, "band", "bor", "bxor", "land", "lor", "lxor", "minloc", "maxloc")
LEAST_OF_BASELINE = 0.8


class Row(NamedTuple):
    """A measurement: its names, and a function that makes it the given number of times."""

    dtype: str
    op: str
    run: Callable[[int], None]


def ones(dtype: str, nbytes: int) -> np.ndarray[Any, Any]:
    """Returns an array aligned to a cache line, as in shared memory and large allocations."""
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    memory = np.zeros(nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    array = memory[start : start + nbytes].view(kind)
    array[:] = np.ones(1, kind)
    return array


def kernel(dtype: str, op: object, nbytes: int) -> Row | None:
    """Returns the row of one kernel, or None if there is no such kernel."""
    out, a, b = (ones(dtype, nbytes) for _ in range(3))
    if op in ("minloc", "maxloc"):
        out, a, b = (x.reshape(-1, 2) for x in (out, a, b))
    try:
        _core._combine(out, a, b, op)
    except pc.Unsupported:
        return None
    return Row(dtype, op if isinstance(op, str) else "scaled sum", lambda n: _core._combine(out, a, b, op, n))


def numpy_add(nbytes: int) -> Row:
    """Returns the row of the baseline, NumPy's `add`."""
    out, a, b = (ones("float32", nbytes) for _ in range(3))

    def run(calls: int) -> None:
        for _ in range(calls):
            np.add(a, b, out=out)

    return Row("float32", "numpy.add", run)


def rows(nbytes: int, everything: bool) -> Iterator[Row]:  # noqa: D103
    yield numpy_add(nbytes)
    for dtype in DTYPES:
        for op in OPS:
            if everything or op == "sum" or dtype == "float32":
                row = kernel(dtype, op, nbytes)
                if row is not None:
                    yield row


def measure(measured: list[Row], nbytes: int, rounds: int) -> dict[tuple[str, str], float]:
    """Returns GB/s by dtype and operation."""
    calls = max(1, (2 << 20) // nbytes)
    best = {(row.dtype, row.op): math.inf for row in measured}
    for _ in range(rounds):
        for row in measured:
            row.run(1)  # loads the arrays into the caches
            began = time.perf_counter()
            row.run(calls)
            seconds = (time.perf_counter() - began) / calls
            best[row.dtype, row.op] = min(best[row.dtype, row.op], seconds)
    return {name: nbytes / seconds / 1e9 for name, seconds in best.items()}


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(usage="python benchmarks/kernels.py [--all] [rounds]")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("rounds", nargs="?", type=int, default=11)
    options = parser.parse_args()
    near, middle, far = (measure(list(rows(n, options.all)), n, options.rounds) for n in SIZES)
    reference, baseline = ("float32", "sum"), far["float32", "numpy.add"]
    print(f"{'':25}{'64 KiB':>8}{'512 KiB':>8}{'16 MiB':>8}   of float32, baseline")
    for name in near:
        of_baseline = far[name] / baseline
        print(
            f"{name[0]:14} {name[1]:10}{near[name]:8.1f}{middle[name]:8.1f}{far[name]:8.1f}"
            f"   {near[name] / near[reference]:.2f} {middle[name] / middle[reference]:.2f} {of_baseline:8.2f}"
            f"{' <' if of_baseline < LEAST_OF_BASELINE else ''}"
        )


if __name__ == "__main__":
    main()
