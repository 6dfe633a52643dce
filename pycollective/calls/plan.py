"""Explains a call without making it."""

from __future__ import annotations

from pycollective import _core
from pycollective.errors import InvalidArgument

__all__ = ["explain"]


def explain(
    collective: str,
    *,
    nbytes: int = 0,
    root: int = 0,
    size: int | None = None,
    hosts: int | None = None,
    rank: int | None = None,
    model: str | None = None,
    device: str = "cpu",
) -> str:
    """Explain how a call would run: in the current world, or, with `size`, in a hypothetical one.

    Parameters:
        collective: "allreduce", "broadcast", "reduce", "barrier" or another collective's name;
            in a world also "send" or "recv", to explain the transport of messages.
        nbytes: size of the whole array in bytes: of allgather's result, of reduce_scatter's
            argument.
        root: for broadcast, reduce, gather and scatter.
        size: explain a world of this many ranks, which need not exist. PYCOLLECTIVE_TUNE of
            this process applies.
        hosts: the number of hosts of those ranks (default 1); only with `size`.
        rank: list the steps of this rank (default: this rank, or rank 0).
        model: the link that times are predicted for: "loopback", "shared_memory",
            "ethernet_10g" or "ethernet_100g" (default: "loopback" on one host, "ethernet_10g"
            between several).
        device: "cuda": explain which path arrays on GPUs use in the current world (NCCL, direct
            access, through the host), and why no other. This communicates nothing, so a rank knows
            the path only after its first call with such arrays.

    Returns:
        A text with the algorithm, the row of the selection table that selects it, the number of
        pieces of the array, the predicted time, the times of the other algorithms, the rank's
        steps, and for up to 8 ranks a table of all messages. The table has a column per rank
        and a line per round, where `c2>3` sends chunk 2 to rank 3, `c1<0` receives chunk 1 from
        rank 0, and `+c1<0` adds it. The text may change with a release.

    Times are those of the alpha-beta-gamma model on idle, equal links (docs/plans.md). They are for
    comparison, and are not measurements.

    Raises:
        InvalidArgument: there is no such collective, root, rank, model or device, or a number
            is out of range.
        NotInitialized: there is no world, and no `size` was passed.

    Example:
        >>> import pycollective as pc
        >>> text = pc.explain("allreduce", nbytes=64 << 20, size=4, hosts=4)
        >>> for line in text.splitlines()[:2]:
        ...     print(line)
        allreduce of 67108864 bytes, 4 ranks on 4 hosts
        algorithm: ring (2(n-1) rounds, each rank sends 2(n-1)/n of the array: best for large arrays)
    """
    if not 0 <= nbytes < 1 << 63:
        raise InvalidArgument(f"explain: nbytes must be 0 to 2**63 - 1, not {nbytes}")
    for name, value in (("root", root), ("size", size), ("hosts", hosts), ("rank", rank)):
        least = 0 if name in ("root", "rank") else 1
        if value is not None and not least <= value <= 65535:
            raise InvalidArgument(f"explain: {name} must be {least} to 65535, not {value}")
    shown, link = -1 if rank is None else rank, model or ""
    if device != "cpu" and size is not None:
        raise InvalidArgument(
            "explain: which way arrays on GPUs go is found out by ranks that are there: no size= with device="
        )
    if size is not None:
        return _core._plan_explain(collective, nbytes, root, size, hosts or 1, shown, link)
    world = _core.world()
    if hosts is not None:
        raise InvalidArgument(
            "explain: hosts without size: the world knows its own; give size= for one that is only thought of"
        )
    return world.explain(collective, nbytes=nbytes, root=root, rank=shown, model=link, device=device)
