"""Compares the ranks before every backward: their batches, learning rates and parameters.

A script that uses numbers computed from this rank's part may decide differently on different ranks.
Such ranks would train different models and average their gradients, and nothing else detects it.
The comparison and the calls that precede a backward use one group, so a rank that does not reach
the same backward is detected, too.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import torch
from torch.optim import Optimizer

from pycollective._core import Group
from pycollective.errors import CollectiveMismatch

__all__ = ["Lockstep"]


class Lockstep:
    """Checksums of what this rank has done: the settings of its steps, and its parameters."""

    def __init__(self, group: Group) -> None:
        self._group = group
        # With several hosts, processors may differ and round differently, so parameters are not
        # compared.
        self._looks_at_parameters = len(set(group._hosts)) == 1
        self._steps = 0
        self._settings = 0
        self._parameters = 0

    def stepped(self, optimizer: Optimizer) -> None:
        """Adds the settings of a step, and a row of one parameter, to the checksums.

        Each step takes another parameter.
        """
        settings = [
            (name, value)
            for each in optimizer.param_groups
            for name, value in sorted(each.items())
            # the types of which repr() shows the value
            if isinstance(value, (int, float, tuple, torch.Tensor))
        ]
        self._settings = zlib.crc32(repr(settings).encode(), self._settings)
        parameters = [parameter for each in optimizer.param_groups for parameter in each["params"]]
        if self._looks_at_parameters and parameters:
            some = parameters[self._steps % len(parameters)].detach()
            self._parameters = zlib.crc32(_first_row(some), self._parameters)
        self._steps += 1

    def compare(self, digest: int, values: list[float]) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Compares the ranks before a backward, and returns the sums of `values` over the ranks.

        `digest` identifies the batches of the backward.

        Raises:
            CollectiveMismatch: on all ranks, if a rank differs from the other ranks.
        """
        mine = np.array([digest, self._settings, self._parameters, *values], np.float64)
        rows = self._group.allgather(mine[None])
        for place, what in enumerate(("batches", "settings of optimizers", "parameters")):
            apart = [rank for rank, row in enumerate(rows) if row[place] != rows[0, place]]
            if apart:
                raise CollectiveMismatch(
                    f"pycollective.torch.auto: rank {apart[0]} has other {what} than rank 0: the script decides by "
                    "something that differs over the ranks, such as numbers computed from their parts of a batch, the "
                    "time, or the order of a set of strings",
                    peer=apart[0] if self._group.rank == 0 else 0,
                )
        sums: np.ndarray[Any, np.dtype[np.float64]] = rows[:, 3:].sum(axis=0)
        return sums


def _first_row(parameter: torch.Tensor) -> bytes:
    if not parameter.numel():
        return b""
    row = parameter[(0,) * (parameter.dim() - 1)] if parameter.dim() else parameter[None]
    return bytes(row.cpu().contiguous().view(torch.uint8).numpy())
