"""Checks before each step that all ranks have equal parameters, for PYCOLLECTIVE_CHECK=strict.

If a program steps with its own gradients instead of the reduced ones, its parameters differ between
ranks from then on, and nothing else detects it.
"""

# ruff: noqa: ANN401  arrays of any library
from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from pycollective._core import Group, Work
from pycollective.arrays.gpu_arrays import is_on_gpu
from pycollective.arrays.libraries import library_of
from pycollective.errors import CollectiveError, CollectiveMismatch

__all__ = ["ParameterCheck"]


class ParameterCheck:
    """Compares the arrays that have changed since construction.

    Unchanged arrays are not compared, because they may not be parameters. The comparison runs in
    the background, in the group of the buckets: no operation waits for it before the end of the
    step.
    """

    title = "the comparison of the parameters, as they were before this step"

    def __init__(self, arrays: Mapping[str, Any], group: Group) -> None:
        self._arrays = {
            name: x
            for name, x in arrays.items()
            if library_of(x).mutable and not is_on_gpu(x) and not name.startswith("(")
        }
        self._before = [_hash(x) for x in self._arrays.values()]
        self._group = group
        self.work: Work[Any] | None = None  # the call of this step, or None before begin()

    def begin(self, timeout: float | None) -> None:
        """Begins the exchange of hashes of the current parameters."""
        hashes = [_hash(x) for x in self._arrays.values()]
        changed = [now != before for now, before in zip(hashes, self._before, strict=True)]
        self.work = self._group.allgather_async(np.array([[hashes, changed]], np.uint64), timeout=timeout)

    def error(self) -> CollectiveError | None:
        """Waits for the comparison. Returns a CollectiveMismatch if a parameter differs, or None.

        The result is the same on all ranks.
        """
        assert self.work is not None
        try:
            every, changed_somewhere = np.moveaxis(self.work.wait(), 1, 0)
        except CollectiveError as error:
            return error
        differs = (every != every[0]).any(0) & changed_somewhere.any(0)
        if not differs.any():
            return None
        at = int(differs.argmax())
        other = int((every[:, at] != every[0, at]).argmax())
        return CollectiveMismatch(
            f'GradientReducer: the parameter "{list(self._arrays)[at]}" is not the same on rank {other} as on rank 0 '
            "before this step: every rank must step with the gradients that reduce() or finish() has returned, not "
            "with its own, and in the same way. Give all ranks those of rank 0 by pycollective.broadcast()",
            rank=self._group.rank,
            peer=other if self._group.rank == 0 else 0,
        )


def _hash(x: Any) -> int:
    """Returns a hash of the elements in index order."""
    library = library_of(x)
    memory = np.empty(library.nbytes(x), np.uint8)
    if memory.size:
        library.assign(library.on(memory, x, library.shape(x)), x)
    return int.from_bytes(hashlib.blake2b(memory.data, digest_size=8).digest(), "little")
