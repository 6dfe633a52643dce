"""A rank that hides its GPU takes part with arrays of the host, from the first call on."""

from __future__ import annotations

import os

from program_context import DEVICE, RANK, proved

if RANK == 1:
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # before anything looks for a GPU
    DEVICE = "cpu"

import torch

import pycollective as pc

pc.init()
rank, size = pc.rank(), pc.size()
total = float(sum(range(size)))
if rank == 1:
    assert not torch.cuda.is_available()
x = torch.arange(100.0, device=DEVICE) + rank
pc.allreduce(x)
assert torch.equal(x.cpu(), torch.arange(100.0) * size + total), x
for root in range(size):
    y = torch.full((7,), float(rank), device=DEVICE)
    pc.broadcast(y, root=root)
    assert y.tolist() == [float(root)] * 7, y
whole = torch.zeros(3 * size, device=DEVICE)
pc.allgather(torch.full((3,), float(rank), device=DEVICE), out=whole)
assert whole.tolist() == [float(each) for each in range(size) for _ in range(3)], whole
parts = [torch.full((4,), 1.0, device=DEVICE), torch.full((2, 2), float(rank), device=DEVICE)]
pc.allreduce(parts)
assert [float(part.flatten()[0]) for part in parts] == [float(size), total], parts
big = torch.full((1 << 18,), float(rank), device=DEVICE)
got = torch.zeros(1 << 18, device=DEVICE)
pc.sendrecv(big, (rank + 1) % size, (rank - 1) % size, out=got)
assert bool((got == (rank - 1) % size).all()), got
pc.shutdown()
proved("allreduce as the first call, broadcast both ways, allgather, a list, a large message")
