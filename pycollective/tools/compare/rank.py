"""One rank of one library: `python -m pycollective.tools.compare.rank SPEC.json`.

start.py also runs this module. Calls follow each other without a barrier. Each rank stores the time
at which each call ended, on the clock that all processes of a host share.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from pycollective.tools.compare import cells
from pycollective.tools.compare.adapter import Adapter


def measure(adapter: Adapter, name: str, nbytes: int, iterations: int) -> dict[str, Any]:
    """Measures one cell. All ranks of all libraries run this loop."""
    cell = cells.make(adapter, name, nbytes)
    root = adapter.size - 1
    cell.fill()
    cell.step(root)
    right = cell.right(root)
    for array in cell.arrays:
        array.fill(0)  # sums of zeros stay zeros after any number of calls
    step, now = cell.step, time.perf_counter_ns
    adapter.barrier()
    for i in range(max(2, iterations // 10)):
        step(i)
    ends = [0] * (iterations + 1)
    adapter.barrier()
    for i in range(iterations + 1):
        step(i)
        ends[i] = now()
    adapter.barrier()
    return {"right": right, "trips": cell.trips, "ends": ends}


def run(spec: dict[str, Any]) -> None:
    """Measures all cells, and writes `rank<R>.json` into the folder that `spec` names."""
    module = import_module("pycollective.tools.compare.adapters." + spec["adapter"])
    adapter: Adapter = module.Adapter(spec)
    done = [
        None if name in adapter.lacks else measure(adapter, name, nbytes, iterations)
        for name, nbytes, iterations in spec["cells"]
    ]
    result = {"version": adapter.version, "cells": done}
    Path(spec["folder"], f"rank{adapter.rank}.json").write_text(json.dumps(result))
    adapter.close()


if __name__ == "__main__":
    run(json.loads(Path(sys.argv[1]).read_text()))
