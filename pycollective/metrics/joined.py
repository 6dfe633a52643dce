"""Joins the arrays of all ranks, for metrics other than means, such as a ranking of all samples."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from pycollective import _core
from pycollective._core import Group
from pycollective.base.advice import advised
from pycollective.base.clock import Clock
from pycollective.calls.blocks import check_block, library_for
from pycollective.errors import CollectiveError, CollectiveMismatch, InvalidArgument
from pycollective.runtime.lifetime import check_timeout

if TYPE_CHECKING:
    from pycollective._core import Array, ListOfArrays

__all__ = ["cat"]

A = TypeVar("A", bound="Array | ListOfArrays")


@advised
def cat(x: A, *, group: Group | None = None, timeout: float | None = None) -> A:
    """Joins the arrays of all ranks along axis 0, in rank order; lengths may differ or be 0.

    Parameters:
        x: an array or tensor. All ranks have the same dtype and the same shape except for axis 0. A
            number counts as an array of one element. A rank without data that does not know dtype
            and shape passes `[]` or an empty array of one axis, such as `torch.empty(0)`. The first
            rank that has data determines dtype and shape.
        group: the ranks that take part; default the world.
        timeout: seconds; default that of the group.

    Returns:
        A new array on every rank.

    Raises:
        InvalidArgument: on every rank, if a rank's `x` is not an array. The group stays usable.
        CollectiveMismatch: on every rank, if dtypes differ, or shapes other than in axis 0. The
            group stays usable.

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
    mine: Any = np.empty(0) if isinstance(x, list) and not x else x
    found = _all_described(members, mine, clock)
    first = next((each for each in found if each[1] != (0,)), found[0])
    if any(each[1] == (0,) and _kind(each) != _kind(first) for each in found):
        mine, reason = _without_data(mine, *first) if found[members.rank][1] == (0,) else (mine, "")
        _raise_first(members.allgather_object(reason, timeout=clock.left_s()), members)
        found = [(first[0], (0, *first[1][1:])) if each[1] == (0,) else each for each in found]
    for rank, (dtype, shape) in enumerate(found):
        if _kind((dtype, shape)) != _kind(found[0]):
            raise CollectiveMismatch(
                f"metrics.cat: all ranks must have one dtype and one shape behind axis 0: rank 0 has {found[0][0]} of "
                f"shape {found[0][1]}, rank {rank} {dtype} of shape {shape}",
                rank=members.rank,
                peer=rank,
            )
    return cast("A", members.allgather(mine, counts=[shape[0] for _, shape in found], timeout=clock.left_s()))


def _kind(described: tuple[str, tuple[int, ...]]) -> tuple[str, tuple[int, ...]]:
    """Returns what must be equal on all ranks: the dtype, and the shape after axis 0."""
    dtype, shape = described
    return dtype, shape[1:]


def _all_described(members: Group, x: object, clock: Clock) -> list[tuple[str, tuple[int, ...]]]:
    """Returns the dtype and shape of each rank's array, by rank."""
    said = members.allgather_object(_described(x), timeout=clock.left_s())
    _raise_first([reason for reason, _, _ in said], members)
    return [(dtype, shape or (1,)) for _, dtype, shape in said]


def _raise_first(reasons: list[str], members: Group) -> None:
    for rank, reason in enumerate(reasons):
        if reason:
            raise InvalidArgument(f"rank {rank}: {reason}", rank=members.rank, peer=rank)


def _without_data(x: Any, dtype: str, shape: tuple[int, ...]) -> tuple[Any, str]:  # noqa: ANN401
    """Returns an empty array of that dtype and shape in the library of `x`, and an error text."""
    torch = sys.modules.get("torch")
    try:
        if torch is not None and isinstance(x, torch.Tensor):
            return x.new_empty((0, *shape[1:]), dtype=getattr(torch, dtype)), ""
        return x.astype(dtype).reshape(0, *shape[1:]), ""
    except (AttributeError, TypeError, ValueError) as error:
        return x, f"metrics.cat: x is empty, and cannot become {dtype} as that of other ranks: {error}"


def _described(x: object) -> tuple[str, str, tuple[int, ...]]:
    """Returns an error text if `x` is not an array, else "", and its dtype and shape."""
    try:
        library = library_for("metrics.cat", "x", x)
        # checked before the collective call, so that all ranks receive the error
        check_block("metrics.cat", "x", library, x)
        return "", library.dtype(x), library.shape(x)
    except CollectiveError as error:
        return str(error), "", ()
