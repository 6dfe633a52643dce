"""pc.torch.DataParallel trains as one process does.

It uses small buckets, accumulation and unused parameters.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from program_context import DEVICE, proved
from torch import nn

import pycollective as pc

STEPS, ROWS = 3, 12


def net() -> Any:
    torch.manual_seed(7)
    layers = [nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)]
    model = nn.Sequential(*layers).to(DEVICE)
    model.register_parameter("unused", nn.Parameter(torch.ones(3, device=DEVICE)))
    return model


def trained(model: Any, rows: slice, accumulate: Any) -> list[Any]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    source = torch.Generator().manual_seed(11)
    for _ in range(STEPS):
        optimizer.zero_grad()
        for context in (accumulate(), contextlib.nullcontext()):  # two batches make one step
            x = torch.randn(ROWS, 8, generator=source)[rows].to(DEVICE)
            with context:
                model(x).square().mean().backward()
        optimizer.step()
    return [each.detach().cpu() for each in model.parameters()]


pc.init()
part = ROWS // pc.size()
ours = pc.torch.DataParallel(net(), bucket_nbytes=1000, first_bucket_nbytes=300)
together = trained(ours, slice(pc.rank() * part, (pc.rank() + 1) * part), ours.no_sync)
ours.close()
alone = trained(net(), slice(0, ROWS), contextlib.nullcontext)
for mine, wanted in zip(together, alone, strict=True):
    torch.testing.assert_close(mine, wanted, rtol=1e-4, atol=1e-6)
pc.shutdown()
proved(
    f"{STEPS} steps of two accumulated batches have the parameters of one process, an unused one as it was"
)
