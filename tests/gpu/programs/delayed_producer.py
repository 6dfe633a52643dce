"""A call waits for the stream that makes its array, and the stream then waits for the call."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from program_context import DEVICE, proved

import pycollective as pc

COUNT, ROUNDS, DELAY_CYCLES = 1 << 18, 4, 100_000_000  # about a twentieth of a second


def beside() -> Any:
    """Opens another stream on a GPU. The CPU has none: there the array is made before the call."""
    return torch.cuda.stream(torch.cuda.Stream()) if DEVICE == "cuda" else contextlib.nullcontext()


def delay() -> None:
    if DEVICE == "cuda":
        torch.cuda._sleep(DELAY_CYCLES)


pc.init()
rank, size = pc.rank(), pc.size()
x, y = torch.zeros(COUNT, device=DEVICE), torch.zeros(COUNT, device=DEVICE)
for rounds in range(ROUNDS):
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    with beside():
        if rank == rounds % size:  # the other ranks are early
            delay()
        x.fill_(rank + rounds)
        pc.allreduce(x, out=y)
        seen = y.clone()
        x.fill_(-1)  # after it has been read
        work = pc.allreduce_async(y)
        work.wait()
        doubled = y * 2
        total = float(sum(range(size)) + size * rounds)
        assert bool((seen == total).all()), (rounds, seen)
        assert bool((doubled == 2 * size * total).all()), (rounds, doubled)
        assert work.wait(host=True) is y
        gathered = pc.allgather(seen[:3] + rank)
        assert gathered.flatten().tolist() == [total + each for each in range(size) for _ in range(3)]
pc.shutdown()
proved(f"{ROUNDS} rounds in line and beside, each with another rank that is late")
