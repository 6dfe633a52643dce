"""The 161 gradients of ResNet-50 as one list, and gloo with one flat tensor, over loopback TCP.

Every rank is in a world of each library. Calls of the two libraries alternate, in changing order,
and a call lasts until its last rank has finished. Needs torch. Arrays are in private memory, and
times are in milliseconds.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import pycollective as pc
from pycollective import testing
from pycollective.launching.run_command import positive

WARM_UP = 3


def shapes() -> list[tuple[int, ...]]:
    """Returns the shapes of torchvision's ResNet-50, in the order of registration."""
    found: list[tuple[int, ...]] = [(64, 3, 7, 7), (64,), (64,)]
    inplanes = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            for conv in ((width, inplanes, 1, 1), (width, width, 3, 3), (4 * width, width, 1, 1)):
                found += [conv, (conv[0],), (conv[0],)]
            if block == 0:
                found += [(4 * width, inplanes, 1, 1), (4 * width,), (4 * width,)]
            inplanes = 4 * width
    return [*found, (1000, 2048), (1000,)]


def timed(call: Callable[[], Any]) -> float:  # noqa: D103
    pc.barrier()
    began = time.perf_counter()
    call()
    mine = time.perf_counter() - began
    return float(pc.allreduce(mine, "max"))


def measure(rounds: int) -> dict[str, list[float]]:  # noqa: D103
    host = dist.TCPStore("127.0.0.1", 0, pc.size(), True, wait_for_workers=False) if pc.rank() == 0 else None
    port = pc.broadcast(host.port if host is not None else 0)
    store = host or dist.TCPStore("127.0.0.1", port, pc.size(), False)
    dist.init_process_group("gloo", store=store, rank=pc.rank(), world_size=pc.size())
    lists: dict[str, list[Any]] = {
        "list of NumPy arrays": [np.ones(shape, np.float32) for shape in shapes()],
        "list of torch tensors": [torch.ones(shape) for shape in shapes()],
    }
    count = sum(array.size for array in lists["list of NumPy arrays"])
    theirs, ours = torch.ones(count), np.ones(count, np.float32)
    calls: dict[str, Callable[[], Any]] = {
        "gloo, flat": lambda: dist.all_reduce(theirs),
        "flat": lambda: pc.allreduce(ours),
        **{name: lambda x=x: pc.allreduce(x) for name, x in lists.items()},
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    # every order, because the preceding call changes a call's time by a tenth
    orders = list(itertools.permutations(calls))
    random.Random(0).shuffle(orders)
    for each in range(WARM_UP + rounds):
        for name in orders[each % len(orders)]:
            took = timed(calls[name])
            if each >= WARM_UP:
                times[name].append(took)
            for array in (theirs, ours, *lists["list of NumPy arrays"], *lists["list of torch tensors"]):
                array[...] = 1
    dist.destroy_process_group()
    return times


def main() -> None:  # noqa: D103
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("ranks", nargs="?", type=positive, default=2, help="(default 2)")
    parser.add_argument("rounds", nargs="?", type=positive, default=20, help="(default 20)")
    options = parser.parse_args()
    ranks, rounds = options.ranks, options.rounds
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    times = testing.run(measure, ranks, rounds, timeout_s=600)[0]
    best = statistics.median(times["gloo, flat"])
    print(f"{ranks} ranks, {rounds} rounds, 161 arrays, 25,557,032 float32")
    print(f"{'':24}{'median':>9}{'p99':>9}{'/ gloo':>9}")
    for name, seconds in times.items():
        median, p99 = statistics.median(seconds), float(np.quantile(seconds, 0.99))
        print(f"{name:24}{median * 1e3:9.1f}{p99 * 1e3:9.1f}{median / best:9.2f}")


if __name__ == "__main__":
    main()
