"""This rank's share of a stream of unknown length, which all ranks read."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import TypeVar

from pycollective._core import Group
from pycollective.base.advice import advised
from pycollective.data.cut import Uneven, check_uneven
from pycollective.data.place import Place

__all__ = ["shard"]

T = TypeVar("T")


@advised
def shard(
    stream: Iterable[T],
    *,
    uneven: Uneven = "pad",
    rank: int | None = None,
    size: int | None = None,
    group: Group | None = None,
) -> Iterator[T]:
    """Iterate this rank's share of a stream: rank r has items r, r + size, r + 2 size, ...

    Every rank reads the whole stream, the same on all, and `size` items ahead; nothing is sent. Where only one rank can
    read it, take scatter().

    Parameters:
        stream: any iterable.
        uneven: if the ranks do not divide the stream's length. "pad": all have as many items, the first come again;
            "drop": all have as many, the last are left out; "exact": each item once, some ranks have one less.
        rank, size: this rank, of how many; default those of the group.
        group: whose ranks share the stream; default the world.

    Raises:
        InvalidArgument: one of these cannot be right.
        NotInitialized: there is no world, and no rank= and size= either.

    Example:
        >>> import pycollective as pc
        >>> [list(pc.data.shard("abcde", rank=rank, size=3)) for rank in range(3)]
        [['a', 'd'], ['b', 'e'], ['c', 'a']]
    """
    place = Place.of("pc.data.shard", rank, size, group)
    check_uneven("pc.data.shard", uneven)
    return _share(iter(stream), place.rank, place.size, uneven)


def _share(stream: Iterator[T], rank: int, size: int, uneven: Uneven) -> Iterator[T]:
    first: list[T] = []
    while items := list(itertools.islice(stream, size)):
        first = first or items
        if rank < len(items) and (uneven != "drop" or len(items) == size):
            yield items[rank]
        elif rank >= len(items) and uneven == "pad":
            yield first[(rank - len(items)) % len(first)]
