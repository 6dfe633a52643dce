"""The rank and size that a sampler uses: passed explicitly, or taken from a group."""

from __future__ import annotations

import operator
from dataclasses import dataclass

from pycollective._core import Group
from pycollective.errors import InvalidArgument, NotInitialized
from pycollective.training.rank0 import members_of

__all__ = ["Place"]


@dataclass(frozen=True)
class Place:
    """This rank's number among the ranks that share the samples."""

    rank: int
    size: int
    group: Group | None  # the group of these ranks; None if rank and size were given

    @classmethod
    def of(cls, call: str, rank: int | None, size: int | None, group: Group | None) -> Place:
        """Return the given rank and size, or else those in the group, or else in the world."""
        if (rank is None) != (size is None) or (rank is not None and group is not None):
            raise InvalidArgument(f"{call}: give rank= and size=, or group=, or none of them")
        if rank is not None and size is not None:
            rank, size = operator.index(rank), operator.index(size)
            if not 0 <= rank < size:
                raise InvalidArgument(f"{call}: there is no rank {rank} among {size}")
            return cls(rank, size, None)
        members = members_of(group)
        if members is None:  # assuming size 1 here would give all samples to every rank
            raise NotInitialized(f"{call}: there is no world: call pc.init() first, or give rank= and size=")
        return cls(members.rank, members.size, members)
