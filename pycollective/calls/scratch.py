"""Memory for packed copies of arrays. It is reused, because fresh pages cost more than the copy."""

from __future__ import annotations

import types
from _thread import allocate_lock
from typing import TYPE_CHECKING

import numpy as np

from pycollective.arrays.library import Memory

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["MOST_KEPT_NBYTES", "Scratch"]

MOST_KEPT_NBYTES = 256 << 20  # size of all kept memory
MOST_KEPT = 8
_lock = allocate_lock()
_kept: list[Memory] = []  # smallest first


class Scratch:
    """The scratch memory of one call. The end of the `with` block releases it for later calls.

    with Scratch() as scratch:
        memory = scratch.take(nbytes)
    """

    def __init__(self) -> None:
        self._taken: list[Memory] = []

    def take(self, nbytes: int) -> Memory:
        """Return `nbytes` bytes, aligned for every element type, with unspecified contents."""
        with _lock:
            fitting = next((i for i, memory in enumerate(_kept) if memory.size >= nbytes), None)
            memory = _kept.pop(fitting) if fitting is not None else None
        if memory is None:
            memory = np.empty(nbytes, np.uint8)
        self._taken.append(memory)
        return memory[:nbytes]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> None:
        with _lock:
            _kept.extend(self._taken)
            _kept.sort(key=len)
            del _kept[:-MOST_KEPT]
            while sum(map(len, _kept)) > MOST_KEPT_NBYTES:
                _kept.pop(0)
        self._taken = []
