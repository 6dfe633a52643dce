"""What a call would do, before it does it."""

from __future__ import annotations

from pycollective._core import world

__all__ = ["explain"]


def explain(collective: str, *, nbytes: int = 0, root: int = 0) -> str:
    """Say in words how a call of the current world would run: transport, algorithm, and the steps of this rank.

    Parameters:
        collective: "allreduce", "broadcast", "reduce" or "barrier".
        nbytes: size of the array in bytes.
        root: for broadcast and reduce.

    Raises:
        InvalidArgument: there is no such collective.
        NotInitialized: there is no world.

    Example:
        >>> import pycollective as pc
        >>> _ = pc.init()
        >>> isinstance(pc.explain("allreduce", nbytes=1 << 20), str)
        True
        >>> pc.shutdown()
    """
    return world().explain(collective, nbytes=nbytes, root=root)
