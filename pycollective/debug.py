"""The recent calls of this rank, and a debugger on one rank, to diagnose jobs that hang or fail."""

from __future__ import annotations

import os
import sys
from typing import TypedDict

from pycollective import _core
from pycollective.errors import InvalidArgument

__all__ = ["Call", "Dump", "breakpoint", "dump"]

AS_LONG_AS_IT_TAKES_S = 1e6


class Call(TypedDict):
    """One call of this rank. Fields that do not apply are None, e.g. the dtype of a barrier."""

    kind: str  # "collective", "confirmation" (PYCOLLECTIVE_CHECK=strict), "send", "recv" or "shutdown"
    collective: str | None  # "allreduce", ...
    dtype: str | None  # NumPy's name
    op: str | None
    state: str  # "running", "done" or "failed"
    result: str | None  # "ok", "timeout", "peer failure", ...; None while the call runs
    root_or_peer: int | None  # a collective's root, or the peer of a message
    group: int  # number of the group; 0 is the world
    tag: int | None
    sequence: int  # the number that the group assigned to the call
    digest: str  # 16 hexadecimal digits; equal on all ranks that made the same call
    count: int | None  # number of elements
    algorithm: str | None
    site: str | None  # where the program made the call: "train.py:42 in step"
    began_s: float  # start of the call in seconds relative to now, so never positive
    elapsed_s: float  # from the start until the call completed, or until now


class Dump(TypedDict):
    """The result of dump(). `json.dumps` accepts it unchanged."""

    rank: int
    size: int
    host: str
    pid: int
    calls: list[Call]  # oldest first


def dump() -> Dump:
    """Return this rank's identity and its last calls (at most 1024, oldest first).

    Calls are always recorded. Any thread may call this, also while a call runs or after one has
    failed. Compare the dumps of several ranks: the ranks diverge at the first call that is missing
    on some of them or has different digests.

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
    # imported here, because importing json takes milliseconds and `import pycollective` must be
    # fast
    import json

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

    Every rank makes this call. The debugger reads its commands from the terminal of the launcher
    under `pycollective run` and pc.run, and otherwise from the rank's own standard input. The first
    command that resumes the program (`continue`, `next`, `step`) resumes all ranks. Until then,
    make no communicating call at the prompt. Without a world, this process stops. The builtin
    `breakpoint()` also stops one rank, but the other ranks continue to their next call and wait
    there until its deadline passes.

    Parameters:
        rank: the rank that stops.

    Raises:
        InvalidArgument: there is no such rank.
        Unsupported: neither that rank nor its launcher has a terminal, and the rank's
            standard input is neither a pipe nor a file.
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
