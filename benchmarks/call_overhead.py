"""The overhead of Python: 10^6 pycollective.allreduce(x) in a world of one, and the same in C++.

Exits with 1 if Python adds more than 0.25 us to a call on a NumPy array.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import numpy as np

import pycollective as pc
from pycollective import _core
from pycollective.launching.run_command import positive

MOST_US = 0.25
ROUNDS = 5  # the fastest round counts, because other programs use the machine too


def python_s(x: Any, count: int) -> float:  # noqa: ANN401, D103
    allreduce = pc.allreduce
    began = time.perf_counter()
    for _ in range(count):
        allreduce(x)
    return time.perf_counter() - began


def arrays() -> dict[str, Any]:  # noqa: D103
    found: dict[str, Any] = {"numpy float32": np.ones(8, np.float32)}
    try:
        import torch
    except ImportError:
        return found
    return {**found, "torch float32": torch.ones(8)}


def main() -> int:  # noqa: D103
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "calls", nargs="?", type=positive, default=1_000_000, help="of each round (default 10^6)"
    )
    count = parser.parse_args().calls
    group = pc.init()
    if group.size != 1:
        sys.exit("call_overhead: start it alone, without a launcher")
    added = {}
    print(f"us per call, {count} calls, best of {ROUNDS}")
    print(f"{'array':16}{'python':>9}{'C++':>9}{'added':>9}")
    for name, x in arrays().items():
        python = min(python_s(x, count) for _ in range(ROUNDS)) / count * 1e6
        native = min(_core._time_calls(group, x, count) for _ in range(ROUNDS)) / count * 1e6
        added[name] = python - native
        print(f"{name:16}{python:9.3f}{native:9.3f}{added[name]:9.3f}")
    pc.shutdown()
    return int(added["numpy float32"] > MOST_US)


if __name__ == "__main__":
    sys.exit(main())
