"""What the checks of torch's backend share: registration by name, and tensors with their rank."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist

CHECKS: dict[str, Callable[[], None]] = {}


def check(function: Callable[[], None]) -> Callable[[], None]:
    CHECKS[function.__name__] = function
    return function


def here() -> tuple[int, int]:
    return dist.get_rank(), dist.get_world_size()


def own(rank: int | None = None) -> torch.Tensor:
    """Returns a 2 x 3 tensor of different numbers, which identify its rank."""
    return torch.arange(6.0).reshape(2, 3) + 10 * (dist.get_rank() if rank is None else rank)


def total() -> torch.Tensor:
    return torch.stack([own(rank) for rank in range(dist.get_world_size())]).sum(0)


def uneven() -> torch.Tensor:
    """Returns a tensor that no collective takes: rank 0 has one element more than the rest."""
    return torch.ones(4 if dist.get_rank() == 0 else 3)


def group_that_waits(seconds: float) -> dist.ProcessGroup:
    """Makes a group with this timeout of calls. Its ranks may arrive later than that to make it."""
    group = dist.new_group()
    group.set_timeout(timedelta(seconds=seconds))
    return group
