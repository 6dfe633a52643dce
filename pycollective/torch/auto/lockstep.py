"""Before every backward the ranks compare what they do: the same batches, the same learning rates, the same parameters.

A script that looks at numbers of a rank's own part may come to other decisions on other ranks. Such ranks train several
models, and average their gradients: nothing else would tell. Ranks that do not come to the same backward at all find
out here, too, since this call is of the same group as the others before it.
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
    """What this rank has done so far, in two numbers."""

    def __init__(self, group: Group) -> None:
        self._group = group
        # Another kind of processor may round otherwise.
        self._looks_at_parameters = len(set(group._hosts)) == 1
        self._steps = 0
        self._settings = 0
        self._parameters = 0

    def stepped(self, optimizer: Optimizer) -> None:
        """Looks at the settings that it stepped with, and at one of its parameters, each time another."""
        settings = [
            (name, value)
            for each in optimizer.param_groups
            for name, value in sorted(each.items())
            if isinstance(value, (int, float, tuple, torch.Tensor))  # what is told by repr()
        ]
        self._settings = zlib.crc32(repr(settings).encode(), self._settings)
        parameters = [parameter for each in optimizer.param_groups for parameter in each["params"]]
        if self._looks_at_parameters and parameters:
            some = parameters[self._steps % len(parameters)].detach()
            self._parameters = zlib.crc32(_first_row(some), self._parameters)
        self._steps += 1

    def compare(self, digest: int, values: list[float]) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The sums of `values` over the ranks, which all call this before a backward for batches with that digest.

        Raises:
            CollectiveMismatch: on all ranks, if one does something else.
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
