"""FSDP2 over pycollective: sharded parameters, clipped gradients and the numbers of one process."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from program_context import DEVICE, proved
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

STEPS, ROWS = 3, 8


def net() -> Any:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 5)).to(DEVICE)


def whole(x: Any) -> Any:
    return x.full_tensor() if isinstance(x, DTensor) else x


def trained(model: Any, rows: slice) -> list[Any]:
    """Returns the norms of the gradients, and the parameters."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    source = torch.Generator().manual_seed(5)
    norms = []
    for _ in range(STEPS):
        x = torch.randn(ROWS, 6, generator=source)[rows].to(DEVICE)
        model(x).square().mean().backward()
        norms.append(whole(nn.utils.clip_grad_norm_(model.parameters(), 0.1)))
        optimizer.step()
        optimizer.zero_grad()
    return [each.detach().cpu() for each in (*norms, *map(whole, model.parameters()))]


dist.init_process_group("pycollective")
rank, size = dist.get_rank(), dist.get_world_size()
sharded = net()
for part in (sharded[0], sharded[2], sharded):
    fully_shard(part, mesh=init_device_mesh(DEVICE, (size,)))
held = sum(each.to_local().numel() for each in sharded.parameters())
number = sum(each.numel() for each in sharded.parameters())
assert held < number, "every rank holds everything"
mine = trained(sharded, slice(rank * ROWS // size, (rank + 1) * ROWS // size))
for ours, wanted in zip(mine, trained(net(), slice(0, ROWS)), strict=True):
    torch.testing.assert_close(ours, wanted, rtol=1e-4, atol=1e-6)
dist.destroy_process_group()
proved(f"{STEPS} steps on {held} of {number} parameters each, norms and parameters as in one process")
