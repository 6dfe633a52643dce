"""A linear layer cut by columns and one cut by rows compute what both compute in one process."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from program_context import DEVICE, proved
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


def net() -> Any:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)).to(DEVICE)
    with torch.no_grad():
        for each in model.parameters():
            each.copy_((each * 10).round())  # whole numbers: sums are exact in any order
    return model


def whole(x: Any) -> Any:
    return (x.full_tensor() if isinstance(x, DTensor) else x).detach().cpu()


dist.init_process_group("pycollective")
size = dist.get_world_size()
x = torch.arange(12.0, device=DEVICE).view(3, 4) - 5
alone = net()
plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
cut = parallelize_module(net(), init_device_mesh(DEVICE, (size,)), plan)
assert cut[0].weight.to_local().shape == (8 // size, 4)
assert cut[2].weight.to_local().shape == (4, 8 // size)
results = []
for model in (alone, cut):
    y = model(x)
    y.square().sum().backward()
    results.append([whole(y), *(whole(each.grad) for each in model.parameters())])
for wanted, found in zip(*results, strict=True):
    assert torch.equal(wanted, found), (wanted, found)
dist.destroy_process_group()
proved(
    f"outputs and {len(results[0]) - 1} gradients of layers on {size} ranks are those of one process, exactly"
)
