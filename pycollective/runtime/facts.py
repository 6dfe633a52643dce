"""The facts that this process knows about itself and its world, without communication."""

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
    launcher: str | None  # where rank and size come from: "pycollective run", "torchrun", "by hand", ...
    rank: int | None
    size: int | None
    local_rank: int | None  # among the ranks of this host
    local_size: int | None
    hosts: tuple[str, ...]  # host name of each rank, by rank
    # Listening addresses of each rank, by rank. Each string has one "ip:port", or several separated
    # by commas.
    addresses: tuple[str, ...]
    # The transport to the other ranks: "shm" if this rank shares memory with all of them, "tcp" if
    # with none, "shm and tcp" if with some. None if there are no other ranks.
    transport: str | None
    shared_memory_ranks: tuple[int, ...]  # the ranks that share memory with this rank, including this rank
    why_no_shared_memory: str  # the reason, in one line; "" if memory is shared
    heap_used_nbytes: int  # used by arrays of empty(), zeros() and empty_like()
    heap_reserved_nbytes: int  # reserved from the system for such arrays
    memory_room_nbytes: int | None  # how much the heap can still grow on this host or in this container
    groups: int  # number of open groups that this rank belongs to, including the world

    @property
    def neighbours(self) -> tuple[int, ...]:
        """Deprecated: the former name of shared_memory_ranks."""
        warnings.warn(
            "Info.neighbours is deprecated: use Info.shared_memory_ranks", DeprecationWarning, stacklevel=2
        )
        return self.shared_memory_ranks


# The world's facts without a world, in this order: rank, size, local rank, local size, hosts,
# addresses, ranks that share memory, why none do, number of groups.
_NO_WORLD = (None, None, None, None, (), (), (), "", 0)


def info() -> Info:
    """Return what this process knows about itself and its world, without communication.

    No other rank need call it. It never raises: before init() and after shutdown() the fields of
    the world are empty.

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
    # The core returns all facts in one call, because another thread may end the world meanwhile.
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
