"""A sharded model and its Adam train on after torch's checkpoints, as if nothing had happened."""

from __future__ import annotations

import tempfile
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from program_context import DEVICE, proved
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def made(seed: int) -> tuple[Any, Any]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 5)).to(DEVICE)
    fully_shard(model, mesh=init_device_mesh(DEVICE, (dist.get_world_size(),)))
    return model, torch.optim.Adam(model.parameters(), lr=0.01)


def train(model: Any, adam: Any, steps: range) -> None:
    for step in steps:
        source = torch.Generator().manual_seed(100 * step + dist.get_rank())
        model(torch.randn(4, 6, generator=source).to(DEVICE)).square().mean().backward()
        adam.step()
        adam.zero_grad()


dist.init_process_group("pycollective")
rank = dist.get_rank()
with tempfile.TemporaryDirectory() as own:
    folders = [own if rank == 0 else None]
    dist.broadcast_object_list(folders, src=0)
    model, adam = made(1)
    train(model, adam, range(2))
    weights, moments = get_state_dict(model, adam)
    dcp.save({"model": weights, "adam": moments}, checkpoint_id=folders[0])
    train(model, adam, range(2, 4))
    other, its_adam = made(2)
    weights, moments = get_state_dict(other, its_adam)
    dcp.load({"model": weights, "adam": moments}, checkpoint_id=folders[0])
    set_state_dict(other, its_adam, model_state_dict=weights, optim_state_dict=moments)
    train(other, its_adam, range(2, 4))
    for mine, wanted in zip(other.parameters(), model.parameters(), strict=True):
        assert torch.equal(mine.to_local(), wanted.to_local()), (mine, wanted)
    dist.barrier()  # before rank 0 removes the folder
dist.destroy_process_group()
proved("two steps after loading give the same bits as without")
