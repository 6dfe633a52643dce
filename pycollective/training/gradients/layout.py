"""Assigns parameters to buckets: a pure function of names, shapes and dtypes.

All ranks must have the same layout; a difference is refused. Li et al., PyTorch Distributed:
Experiences on Accelerating Data Parallel Training, VLDB 2020, section 3.2: backward makes gradients
roughly in the reverse order of registration. So the parameters are assigned to buckets in this
reverse order, and the first bucket is small, so that it is sent early.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from pycollective._core import Group
from pycollective.errors import CollectiveMismatch

__all__ = ["Slot", "check_same_on_all_ranks", "cut"]


class Slot(NamedTuple):
    """The properties of a parameter that determine its position."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    order: tuple[int, ...] = ()  # axes in memory order, the slowest first

    def words(self) -> str:
        """Returns a description for errors, such as `"weight" float32[3, 4]`."""
        return f'"{self.name}" {self.dtype}{list(self.shape)}'

    def all_words(self) -> str:
        """Returns words() and, if the memory is not in C order, the order of the axes."""
        in_memory = "" if self.order == tuple(sorted(self.order)) else f", axes {self.order} in memory"
        return self.words() + in_memory


def cut(slots: Iterable[Slot], bucket_nbytes: int, first_bucket_nbytes: int) -> list[list[Slot]]:
    """Returns buckets of one dtype each, in the order in which backward should complete them.

    Parameters:
        slots: in the order of registration; the buckets have the reverse order.
        bucket_nbytes: the maximum size of a bucket. A larger parameter has a bucket of its own.
        first_bucket_nbytes: the same for the first bucket.
    """
    done: list[list[Slot]] = []
    growing: dict[str, list[Slot]] = {}
    room: dict[str, int] = {}
    ordered = list(slots)[::-1]
    for slot in ordered:
        if slot.dtype in growing and slot.nbytes > room[slot.dtype]:
            done.append(growing.pop(slot.dtype))
        if slot.dtype not in growing:
            growing[slot.dtype] = []
            room[slot.dtype] = bucket_nbytes if done else first_bucket_nbytes
        growing[slot.dtype].append(slot)
        room[slot.dtype] -= slot.nbytes
    place = {slot.name: at for at, slot in enumerate(ordered)}
    return sorted([*done, *growing.values()], key=lambda bucket: place[bucket[-1].name])


def check_same_on_all_ranks(
    group: Group, slots: list[Slot], settings: list[str], timeout: float | None
) -> None:
    """Raises CollectiveMismatch on every rank unless all have the same slots and settings.

    The text of the error is the same on all ranks. The cost is one allgather of 32 bytes, and a
    second one of all descriptions if there is a difference.
    """
    mine = [slot.all_words() for slot in slots] + settings
    digest = hashlib.sha256("\n".join(mine).encode()).digest()
    digests = group.allgather(np.frombuffer(digest, np.uint8)[None], timeout=timeout)
    if (digests == digests[0]).all():
        return
    every: list[list[str]] = group.allgather_object(mine, timeout=timeout)
    first = every[0]
    other = next(rank for rank, theirs in enumerate(every) if theirs != first)
    pairs = itertools.zip_longest(every[other][: -len(settings)], first[: -len(settings)])
    at, (theirs, ours) = next(
        ((at, pair) for at, pair in enumerate(pairs) if pair[0] != pair[1]), (-1, ("", ""))
    )
    if at >= 0:
        what = f"parameter {at} is {theirs or 'missing'} on rank {other} and {ours or 'missing'} on rank 0"
    else:
        what = (
            f"all parameters are equal, but rank {other} has {every[other][-len(settings) :]} and rank 0 has "
        )
        what += f"{first[-len(settings) :]}"
    raise CollectiveMismatch(
        f"GradientReducer: the ranks have different parameters or settings: {what}. Build the same model in the same "
        "order on every rank",
        rank=group.rank,
        peer=other if group.rank == 0 else 0,
    )
