"""The arrays of all ranks, joined: for what has no mean, like a ranking over all samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pycollective import _core
from pycollective._core import Group
from pycollective.advice import advised
from pycollective.blocks import check_block, library_for
from pycollective.clock import Clock
from pycollective.errors import CollectiveError, CollectiveMismatch, InvalidArgument
from pycollective.lifetime import check_timeout

if TYPE_CHECKING:
    from pycollective._core import Array, Bundle

__all__ = ["cat"]

A = TypeVar("A", bound="Array | Bundle")


@advised
def cat(x: A, *, group: Group | None = None, timeout: float | None = None) -> A:
    """Join the arrays of all ranks along axis 0, in rank order: each may have another length, also none at all.

    Parameters:
        x: an array or tensor, of one dtype and the same shape behind axis 0 on every rank: an empty one too, as in
            `np.empty((0, 10), np.float32)`. A number counts as an array of one.
        group: whose ranks take part; default the world.
        timeout: seconds; default that of the group.

    Returns:
        A new array on every rank.

    Raises:
        InvalidArgument: on every rank, if what one of them has is no array. The group goes on.
        CollectiveMismatch: on every rank, if dtypes or shapes behind axis 0 differ. The group goes on.

    Example:
        >>> import numpy as np
        >>> import pycollective as pc
        >>> _ = pc.init()
        >>> pc.metrics.cat(np.arange(3))
        array([0, 1, 2])
        >>> pc.shutdown()
    """
    check_timeout(timeout)
    clock = Clock(timeout)
    members = _core.world() if group is None else group
    shapes: list[tuple[int, ...]] = []
    kinds: list[tuple[str, tuple[int, ...]]] = []
    for rank, (reason, dtype, shape) in enumerate(
        members.allgather_object(_described(x), timeout=clock.left_s())
    ):
        if reason:
            raise InvalidArgument(f"rank {rank}: {reason}", rank=members.rank, peer=rank)
        shapes.append(shape or (1,))
        kinds.append((dtype, shapes[-1][1:]))
        if kinds[rank] != kinds[0]:
            told = (
                f"rank 0 has {kinds[0][0]} of shape {shapes[0]}, rank {rank} {dtype} of shape {shapes[rank]}"
            )
            raise CollectiveMismatch(
                f"metrics.cat: all ranks must have one dtype and one shape behind axis 0: {told}",
                rank=members.rank,
                peer=rank,
            )
    return members.allgather(x, counts=[shape[0] for shape in shapes], timeout=clock.left_s())


def _described(x: object) -> tuple[str, str, tuple[int, ...]]:
    """Why it is no array; its dtype; its shape."""
    try:
        library = library_for("metrics.cat", "x", x)
        check_block("metrics.cat", "x", library, x)  # here, so that all ranks hear of it
        return "", library.dtype(x), library.shape(x)
    except CollectiveError as error:
        return str(error), "", ()
