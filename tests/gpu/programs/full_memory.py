"""The GPU is full: a call works or raises on every rank.

The group stays usable with arrays of the host.
"""

from __future__ import annotations

from typing import Any

import torch
from program_context import BY_NCCL, proved

import pycollective as pc

SMALLEST, PARTS, PART = 1 << 20, 8, 1 << 22  # 8 tensors of 16 MiB


def take_all() -> list[Any]:
    """Allocates all that the GPU has left, in smaller and smaller pieces."""
    taken, nbytes = [], int(torch.cuda.mem_get_info()[0])
    while nbytes >= SMALLEST:
        try:
            taken.append(torch.empty(nbytes, dtype=torch.uint8, device="cuda"))
        except torch.cuda.OutOfMemoryError:
            nbytes //= 2
    return taken


pc.init()
rank, size = pc.rank(), pc.size()
parts = [torch.full((PART,), float(rank + each), device="cuda") for each in range(PARTS)]
if not BY_NCCL:  # NCCL allocates memory in the first call of a group, which is what this program tests
    pc.allreduce(torch.ones(4, device="cuda"))
torch.cuda.synchronize()
pc.barrier()
taken = take_all()
pc.barrier()
free = int(torch.cuda.mem_get_info()[0])
said = ""
try:
    pc.allreduce(parts)
    torch.cuda.synchronize()
except pc.CollectiveError as error:
    said = str(error)
    assert "memory" in said, said
outcomes = pc.allgather_object(bool(said))
assert outcomes == [bool(said)] * size, f"not the same on all ranks: {outcomes}"
x = torch.arange(10.0) + rank
pc.allreduce(x)
assert torch.equal(x, torch.arange(10.0) * size + sum(range(size))), x
del taken
torch.cuda.empty_cache()
if not said:
    for each, part in enumerate(parts):
        assert bool((part == sum(range(size)) + each * size).all()), (each, part)
pc.shutdown()
how = "refused on all ranks, which names the memory" if said else "right all the same"
proved(f"with {free >> 20} MiB left a list of {PARTS} tensors is {how}; the host's arrays go on")
