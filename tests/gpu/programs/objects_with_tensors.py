"""Objects with tensors arrive as they were sent.

They are a state dict of Adam, views, bfloat16 and empty tensors.
"""

from __future__ import annotations

from typing import Any

import torch
from program_context import DEVICE, proved
from torch import nn

import pycollective as pc


def state(seed: int) -> Any:
    """Returns the state of a small model and its optimizer after one step."""
    torch.manual_seed(seed)
    model = nn.Linear(4, 3).to(DEVICE)
    adam = torch.optim.Adam(model.parameters(), lr=0.01)
    model(torch.ones(2, 4, device=DEVICE)).square().sum().backward()
    adam.step()
    with torch.no_grad():
        return {
            "model": {name: x.clone() for name, x in model.state_dict().items()},
            "adam": adam.state_dict(),
        }


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return bool(a.dtype == b.dtype and a.device == b.device and a.shape == b.shape and torch.equal(a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


pc.init()
rank, size = pc.rank(), pc.size()
got = pc.broadcast_object(state(1) if rank == 0 else None)
assert same(got, state(1)), got
fresh = nn.Linear(4, 3).to(DEVICE)
torch.optim.Adam(fresh.parameters()).load_state_dict(got["adam"])
block = torch.arange(6, device=DEVICE).view(2, 3) + rank
mine = {"transposed": block.T, "half": block.bfloat16(), "none": block[:0], "host": block.cpu(), "rank": rank}
for source, other in enumerate(pc.allgather_object(mine)):
    wanted = torch.arange(6, device=DEVICE).view(2, 3) + source
    assert same(other["transposed"], wanted.T), other
    assert same(other["half"], wanted.bfloat16()), other
    assert same(other["none"], wanted[:0]), other
    assert same(other["host"], wanted.cpu()), other
    assert other["rank"] == source
pc.shutdown()
proved(
    "a state dict of Adam, and of every rank a transposed view, bfloat16, an empty tensor, one of the host"
)
