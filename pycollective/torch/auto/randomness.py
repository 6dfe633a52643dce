"""Copies rank 0's random number generators to all ranks, which then draw the same batches."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from pycollective._core import Group

__all__ = ["synchronize"]

MOST_NBYTES = 1 << 20


def synchronize(group: Group, loader: DataLoader[Any] | None = None) -> None:
    """Copies the states of torch, NumPy and Python, and those of a loader and its samplers."""
    generators = _generators(loader)
    if group.rank == 0:
        state: Any = (
            torch.get_rng_state().numpy(),
            np.random.get_state(),
            random.getstate(),
            [each.get_state().numpy() for each in generators],
        )
        group.broadcast_object(state, max_nbytes=MOST_NBYTES)
        return
    of_torch, of_numpy, of_python, of_generators = group.broadcast_object(None, max_nbytes=MOST_NBYTES)
    torch.set_rng_state(torch.from_numpy(of_torch))
    np.random.set_state(of_numpy)
    random.setstate(of_python)
    for each, its in zip(generators, of_generators, strict=True):
        each.set_state(torch.from_numpy(its))


def _generators(loader: DataLoader[Any] | None) -> list[torch.Generator]:
    if loader is None:
        return []
    batch_sampler = loader.batch_sampler
    places = [loader, loader.sampler, batch_sampler, getattr(batch_sampler, "sampler", None)]
    found = [getattr(each, "generator", None) for each in places]
    return list({id(each): each for each in found if isinstance(each, torch.Generator)}.values())
