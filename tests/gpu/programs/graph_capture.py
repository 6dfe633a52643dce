"""Calls that are captured into a CUDA graph run whenever the graph is launched."""

from __future__ import annotations

import torch
from program_context import proved

import pycollective as pc

COUNT, REPLAYS = 1 << 16, 4
pc.init(backend="nccl")
rank, size = pc.rank(), pc.size()
total = float(sum(range(size)))
x, y = torch.zeros(COUNT, device="cuda"), torch.zeros(COUNT, device="cuda")
whole = torch.zeros(4 * size, device="cuda")
pc.allreduce(x, out=y)
pc.allgather(y[:4], out=whole)
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    pc.allreduce(x, out=y)
    y += 1
    pc.allreduce_async(y).wait()
    y *= 2
    pc.allgather(y[:4], out=whole)
for value in range(REPLAYS):
    x.fill_(value + rank)
    graph.replay()
    torch.cuda.synchronize()
    wanted = 2 * size * (size * value + total + 1)
    assert bool((y == wanted).all()), (value, wanted, y)
    assert bool((whole == wanted).all()), (value, wanted, whole)
    z = torch.full((8,), float(rank), device="cuda")  # a plain call between the replays
    pc.allreduce(z)
    assert z.tolist() == [total] * 8, z
pc.shutdown()
proved(f"{REPLAYS} replays of two sums and a gather on {size} ranks, with other calls between them")
