"""torch's pipeline schedules over pycollective give the loss and gradients of the whole model."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from program_context import DEVICE, proved
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe


def layers() -> list[Any]:
    torch.manual_seed(2)
    return [nn.Sequential(nn.Linear(6, 10), nn.Tanh()).to(DEVICE), nn.Linear(10, 3).to(DEVICE)]


def loss_of(y: Any, target: Any) -> Any:
    return (y - target).square().mean()


dist.init_process_group("pycollective")
rank = dist.get_rank()
x = torch.arange(48.0, device=DEVICE).view(8, 6) / 48
target = torch.arange(24.0, device=DEVICE).view(8, 3) / 24

alone = layers()
loss = loss_of(alone[1](alone[0](x)), target)
loss.backward()

for kind in (ScheduleGPipe, Schedule1F1B):
    part = layers()[rank]
    schedule = kind(PipelineStage(part, rank, 2, torch.device(DEVICE)), n_microbatches=4, loss_fn=loss_of)
    losses: list[Any] = []
    if rank == 0:
        schedule.step(x)
    else:
        schedule.step(target=target, losses=losses)
        torch.testing.assert_close(torch.stack(losses).mean(), loss, rtol=1e-4, atol=1e-6)
    for mine, wanted in zip(part.parameters(), alone[rank].parameters(), strict=True):
        torch.testing.assert_close(mine.grad, wanted.grad, rtol=1e-4, atol=1e-6)
dist.destroy_process_group()
proved("GPipe and 1F1B of two stages have the loss and the gradients of one process")
