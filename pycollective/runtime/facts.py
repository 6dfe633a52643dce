"""What this process knows of itself and its world, without communication."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass

from pycollective import _core
from pycollective._version import __version__
from pycollective.runtime import heap, lifetime

__all__ = ["Info", "info"]


@dataclass(frozen=True)
class Info:
    """The result of info(). Fields of the world are None, 0 or empty where there is no world.

    Example:
        >>> import pycollective as pc
        >>> pc.Info.__dataclass_params__.frozen
        True
    """

    version: str
    host: str  # this host's name
    pid: int
    launcher: str | None  # the source of rank and size: "pycollective run", "torchrun", "by hand", ...
    rank: int | None
    size: int | None
    local_rank: int | None  # among the ranks of this host
    local_size: int | None
    hosts: tuple[str, ...]  # the name of each rank's host, by rank
    # the listening address of each rank, by rank: "ip:port", several separated by commas
    addresses: tuple[str, ...]
    # "shm" if this rank shares memory with all other ranks, "tcp" if with none, "shm and tcp" if
    # with some. None if there are no other ranks.
    transport: str | None
    shared_memory_ranks: tuple[int, ...]  # the ranks that share memory with this one, itself included
    why_no_shared_memory: str  # in one line; "" if memory is shared
    heap_used_nbytes: int  # in arrays of empty(), zeros() and empty_like()
    heap_reserved_nbytes: int  # reserved from the system for them
    memory_room_nbytes: int | None  # how much the heap may still grow, on this machine or in this container
    groups: int  # open groups that this rank is in, including the world

    @property
    def neighbours(self) -> tuple[int, ...]:
        """Deprecated: the former name of shared_memory_ranks."""
        warnings.warn(
            "Info.neighbours is deprecated: use Info.shared_memory_ranks", DeprecationWarning, stacklevel=2
        )
        return self.shared_memory_ranks


# The order: rank, size, local rank, local size, hosts, addresses, ranks that share memory, why
# there are none, groups.
_NO_WORLD = (None, None, None, None, (), (), (), "", 0)


def info() -> Info:
    """Return what this process knows of itself and its world, without communication.

    No other rank need call it. It raises nothing: before init() and after shutdown() it returns
    what is known then.

    Returns:
        An Info, a frozen dataclass that documents its fields. Sizes are in bytes. It is a
        snapshot: call info() again after the world has changed.

    Example:
        >>> import pycollective as pc
        >>> pc.info().rank is None
        True
        >>> _ = pc.init()
        >>> info = pc.info()
        >>> info.rank, info.size, info.transport, info.groups
        (0, 1, None, 1)
        >>> pc.shutdown()
    """
    # A single snapshot, because another thread may end the world meanwhile.
    found = _core._world_facts()
    rank, size, local_rank, local_size, hosts, addresses, sharing, why_none, groups = found or _NO_WORLD
    usage = heap.usage()
    return Info(
        version=__version__,
        host=os.uname().nodename,
        pid=os.getpid(),
        launcher=None if found is None else lifetime.launcher(),
        rank=rank,
        size=size,
        local_rank=local_rank,
        local_size=local_size,
        hosts=hosts,
        addresses=addresses,
        transport=_transport(len(hosts), len(sharing)),
        shared_memory_ranks=sharing,
        why_no_shared_memory=why_none,
        heap_used_nbytes=usage.used_nbytes,
        heap_reserved_nbytes=usage.reserved_nbytes,
        memory_room_nbytes=_core._memory_room(),
        groups=groups,
    )


def _transport(size: int, sharing: int) -> str | None:
    if size <= 1:
        return None
    return "shm" if sharing == size else "shm and tcp" if sharing else "tcp"
