"""A group of another backend exists beside one of ours, and neither takes the other's calls."""

from __future__ import annotations

import torch
import torch.distributed as dist
from program_context import BY_NCCL, DEVICE, proved

dist.init_process_group("pycollective")
rank, size = dist.get_rank(), dist.get_world_size()
theirs = {"gloo": dist.new_group(backend="gloo")}
if BY_NCCL:  # it refuses ranks that share a GPU of one host
    theirs["nccl"] = dist.new_group(backend="nccl")
total = float(sum(range(size)))
for name, group in [*theirs.items(), *theirs.items()]:
    device = DEVICE if name == "nccl" else "cpu"
    for i in range(3):
        x, y = torch.full((5,), rank + i, device=device), torch.full((5,), rank - i, device=DEVICE)
        work = dist.all_reduce(x, group=group, async_op=True)
        dist.all_reduce(y)
        work.wait()
        assert x.tolist() == [total + i * size] * 5, (name, x)
        assert y.tolist() == [total - i * size] * 5, (name, y)
    parts = torch.full((3,), float(rank), device=device)
    whole, ours = torch.zeros(3 * size, device=device), torch.zeros(3 * size, device=DEVICE)
    dist.all_gather_into_tensor(whole, parts, group=group)
    dist.all_gather_into_tensor(ours, parts.to(DEVICE))
    wanted = [float(each) for each in range(size) for _ in range(3)]
    assert whole.tolist() == ours.tolist() == wanted, (name, whole, ours)
dist.barrier(group=theirs["gloo"])
dist.destroy_process_group()
proved(f"sums and gathers of a group of {' and one of '.join(theirs)} beside ours, also at the same time")
