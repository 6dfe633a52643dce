"""What this process knows of itself and its world, without asking anybody."""

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
    """What info() returns. Of a world there is None, 0 or nothing where there is no world.

    Example:
        >>> import pycollective as pc
        >>> pc.Info.__dataclass_params__.frozen
        True
    """

    version: str
    host: str  # this host's name
    pid: int
    launcher: str | None  # who said what our place is: "pycollective run", "torchrun", "by hand", ...
    rank: int | None
    size: int | None
    local_rank: int | None  # among the ranks of this host
    local_size: int | None
    hosts: tuple[str, ...]  # the name of each rank's host, by rank
    addresses: tuple[str, ...]  # where each rank listens, by rank: "ip:port", several with commas between
    # "shm": this rank shares memory with all others, "tcp": with none, "shm and tcp": with some.
    # None: there are no others.
    transport: str | None
    shared_memory_ranks: tuple[int, ...]  # the ranks that share memory with this one, itself included
    why_no_shared_memory: str  # in one line; "" if there is some
    heap_used_nbytes: int  # in arrays of empty(), zeros() and empty_like()
    heap_reserved_nbytes: int  # taken from the system for them
    memory_room_nbytes: int | None  # what the heap may still grow by, on this machine or in this container
    groups: int  # that this rank is in and that are open, the world included

    @property
    def neighbours(self) -> tuple[int, ...]:
        """Deprecated: the former name of shared_memory_ranks."""
        warnings.warn(
            "Info.neighbours is deprecated: use Info.shared_memory_ranks", DeprecationWarning, stacklevel=2
        )
        return self.shared_memory_ranks


# Rank, size, local rank and size, hosts, addresses, ranks that share memory, why there are none, groups.
_NO_WORLD = (None, None, None, None, (), (), (), "", 0)


def info() -> Info:
    """Say what this process knows of itself and its world. Nobody is asked: it is quick, and no rank need do the same.

    Before init() and after shutdown() it says what is known then; so it raises nothing.

    Returns:
        an Info, a frozen dataclass: its fields are explained there. Sizes are in bytes. It does not change when the
        world does: ask again.

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
    # All at once: another thread may end the world meanwhile.
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
