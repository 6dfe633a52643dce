"""The overhead of torch.distributed's backend: dist.all_reduce of 8 B and an empty process group.

    torchrun --nproc-per-node 1 benchmarks/backend_overhead.py

Each round measures every kind of call. "floor" is a call of a process group that does nothing:
torch's own share of a call. With one rank there is no communication, so the rest is the backend.
With more ranks, `pc.allreduce` is the cost of a call without torch. us per call: the median of the
rounds, and the best round.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

import pycollective as pc


class Done(dist.Work):
    """The Work of a call that does nothing."""

    def wait(self, timeout: object = None) -> bool:  # noqa: D102
        return True


class Nothing(dist.ProcessGroup):
    """A process group with an allreduce that returns at once."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(rank, size)
        self._done = Done()

    def allreduce(self, tensors: object, opts: object = None) -> dist.Work:  # noqa: D102
        return self._done

    def getBackendName(self) -> str:  # noqa: D102
        return "nothing"


def us_per_call(call: Callable[[], object], count: int) -> float:
    """Returns the time per call of one round."""
    began = time.perf_counter()
    for _ in range(count):
        call()
    return 1e6 * (time.perf_counter() - began) / count


def main() -> None:
    """Measures all kinds in each round, and prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("pycollective")
    dist.Backend.register_backend(
        "nothing", lambda store, rank, size, timeout: Nothing(rank, size), devices=["cpu"]
    )
    floor = dist.new_group(backend="nothing")
    x = torch.ones(2)
    kinds: dict[str, Callable[[], object]] = {
        "floor": lambda: dist.all_reduce(x, group=floor),
        "dist.all_reduce": lambda: dist.all_reduce(x),
        "pc.allreduce": lambda: pc.allreduce(x),
    }
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    for number in range(arguments.rounds + 1):
        for kind, call in kinds.items():
            pc.barrier()
            measured = us_per_call(call, arguments.calls)
            x.fill_(1)
            if number:
                times[kind].append(measured)
    if dist.get_rank() == 0:
        least = {kind: min(each) for kind, each in times.items()}
        print(f"{'':18}{'median':>9}{'best':>9}")
        for kind, each in times.items():
            print(f"{kind:18}{statistics.median(each):9.2f}{least[kind]:9.2f}")
        middle = statistics.median(
            ours - theirs for ours, theirs in zip(times["dist.all_reduce"], times["floor"], strict=True)
        )
        print(f"{'added':18}{middle:9.2f}{least['dist.all_reduce'] - least['floor']:9.2f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
