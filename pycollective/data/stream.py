"""This rank's share of a stream of unknown length, which every rank reads."""

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

    Every rank reads the whole stream, which must be the same on all ranks, and reads `size` items
    ahead. Nothing is sent. If only one rank can read the stream, use scatter().

    Parameters:
        stream: any iterable.
        uneven: the handling if the number of ranks does not divide the stream's length. "pad":
            all ranks have equally many items, and the first items are repeated; "drop": all ranks
            have equally many items, and the last items are left out; "exact": each item occurs
            once, and some ranks have one item less.
        rank, size: this rank, and the number of ranks; default those of the group.
        group: the ranks that share the stream; default the world.

    Raises:
        InvalidArgument: an argument is invalid.
        NotInitialized: there is no world, and rank= and size= are not given.

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
