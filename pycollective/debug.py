"""What this rank is doing and has done last, and a look into one: for finding out why a job hangs, or why it failed."""

from __future__ import annotations

import os
import sys
from typing import TypedDict

from pycollective import _core
from pycollective.errors import InvalidArgument

__all__ = ["Call", "Dump", "breakpoint", "dump"]

AS_LONG_AS_IT_TAKES_S = 1e6


class Call(TypedDict):
    """One call of this rank. What a call does not have is None: a barrier has no dtype, a message no collective."""

    kind: str  # "collective", "confirmation" (PYCOLLECTIVE_CHECK=strict), "send", "recv" or "shutdown"
    collective: str | None  # "allreduce", ...
    dtype: str | None  # NumPy's name
    op: str | None
    state: str  # "running", "done" or "failed"
    result: str | None  # "ok", "timeout", "peer failure", ...; None while it runs
    root_or_peer: int | None  # a collective's root, or the rank at a message's other end
    group: int  # 0 is the world
    tag: int | None
    sequence: int  # the number that the group gave to it
    digest: str  # equal on all ranks that made the same call: 16 hexadecimal digits
    count: int | None  # elements
    algorithm: str | None
    site: str | None  # where the program made it: "train.py:42 in step"
    began_s: float  # seconds from now, so never positive
    elapsed_s: float  # until it ended, or until now


class Dump(TypedDict):
    """What dump() returns; `json.dumps` takes it as it is."""

    rank: int
    size: int
    host: str
    pid: int
    calls: list[Call]  # oldest first


def dump() -> Dump:
    """Return who this rank is and its last calls, at most 1024, oldest first. They are recorded always.

    Any thread may ask, also while a call runs or after one has failed. Compare the dumps of several ranks: the call
    that some have and others have not, or whose digests differ, is where they parted.

    Raises:
        NotInitialized: there is no world.

    Example:
        >>> import pycollective as pc
        >>> _ = pc.init()
        >>> pc.barrier()
        >>> dump = pc.debug.dump()
        >>> dump["rank"], dump["size"]
        (0, 1)
        >>> pc.shutdown()
    """
    import json  # takes milliseconds, and importing pycollective shall not

    world = _core.world()
    calls = json.loads(_core._flight_record())
    return {
        "rank": world.rank,
        "size": world.size,
        "host": os.uname().nodename,
        "pid": os.getpid(),
        "calls": calls,
    }


def breakpoint(rank: int = 0) -> None:
    """Stop in Python's debugger on one rank, at the caller's line, while the other ranks wait here.

    Every rank makes this call. What is typed goes to that rank: under `pycollective run` and pc.run on the terminal of
    the launcher, elsewhere on the rank's own standard input. With the first command that goes on (`continue`, `next`,
    `step`) all ranks go on; until then no call of the world must be made at the prompt. Without a world this process
    stops. The builtin `breakpoint()` stops one rank too, while the others run into their next call and its deadline.

    Parameters:
        rank: which one stops.

    Raises:
        InvalidArgument: there is no such rank.
        Unsupported: that rank and its launcher have no terminal, and no standard input that is a pipe or a file.
        PeerFailure: on the other ranks, after `quit`.

    Example:
        >>> import pycollective as pc
        >>> pc.debug.breakpoint(rank=0)  # doctest: +SKIP
    """
    from pycollective import debugger
    from pycollective.runtime import lifetime

    frame = sys._getframe(1)
    if not lifetime.is_initialized() or _core.world().size == 1:
        debugger.stop(frame, before_going_on=lambda: None)
        return
    world = _core.world()
    if not 0 <= rank < world.size:
        raise InvalidArgument(f"debug.breakpoint(rank={rank}): the world has ranks 0 to {world.size - 1}")
    if world.rank != rank:
        world.barrier(timeout=AS_LONG_AS_IT_TAKES_S)
        return
    debugger.stop(frame, before_going_on=lambda: world.barrier(timeout=AS_LONG_AS_IT_TAKES_S))
