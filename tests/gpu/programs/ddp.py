"""DDP over pycollective trains as one process does on the whole batch."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from program_context import DEVICE, proved
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 4


def net() -> Any:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)).to(
        DEVICE
    )


def trained(model: Any, rows: slice) -> list[Any]:
    """Returns the parameters after some steps on these rows of each batch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    source = torch.Generator().manual_seed(11)
    for _ in range(STEPS):
        x, y = torch.randn(16, 8, generator=source), torch.randn(16, 4, generator=source)
        optimizer.zero_grad()
        (model(x[rows].to(DEVICE)) - y[rows].to(DEVICE)).square().mean().backward()
        optimizer.step()
    return [each.detach().cpu() for each in model.parameters()]


dist.init_process_group("pycollective")
rank, size = dist.get_rank(), dist.get_world_size()
rows = 16 // size
together = trained(DistributedDataParallel(net(), bucket_cap_mb=0.001), slice(rank * rows, (rank + 1) * rows))
alone = trained(net(), slice(0, 16))
for mine, wanted in zip(together, alone, strict=True):
    torch.testing.assert_close(mine, wanted, rtol=1e-4, atol=1e-6)
unequal = [torch.zeros_like(together[0]) for _ in range(size)]
dist.all_gather(unequal, together[0])
assert all(torch.equal(each, together[0]) for each in unequal), "the ranks have different parameters"
dist.destroy_process_group()
proved(
    f"DDP of {size} ranks has the parameters of one process after {STEPS} steps, the same bits on every rank"
)
