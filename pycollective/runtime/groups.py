"""Groups and meshes of ranks. bindings/docs/group_docs.h has the user documentation of groups.

A group has a number that none of its members uses for another group. One rank reserves the number
and sends it to the other ranks: rank 0 of the parent group for split() and Mesh, and the lowest
member for group() (group_agreement). If the parent group uses NCCL on all its ranks, the new groups
join by NCCL immediately.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence

import numpy as np

from pycollective import _core
from pycollective._core import Group
from pycollective.base.advice import advised, answers_for_attributes
from pycollective.errors import CollectiveMismatch, InvalidArgument

__all__ = ["Mesh", "split", "subgroup"]


@advised
def subgroup(group: Group, ranks: Sequence[int], *, timeout: float | None = None) -> Group | None:
    """See Group.group()."""
    members = [operator.index(rank) for rank in ranks]
    if not members:
        raise InvalidArgument("group: ranks is empty")
    for rank in members:
        if not 0 <= rank < group.size:
            raise InvalidArgument(f"group: ranks must be between 0 and {group.size - 1}, not {rank}")
    if len(set(members)) < len(members):
        raise InvalidArgument(f"group: ranks repeat one: {members}")
    if group.rank not in members:
        return None
    from pycollective.runtime.group_agreement import agree

    number = agree(group, members, timeout)
    return group._make(number, [group.ranks[rank] for rank in members])


@advised
def split(
    group: Group, color: int | str | None, key: int = 0, *, timeout: float | None = None
) -> Group | None:
    """See Group.split()."""
    if color == "host":
        color = group._hosts[group.rank]
    if isinstance(color, str):
        raise InvalidArgument(f'split: color must be an integer, None or "host", not {color!r}')
    chosen = 0 if color is None else operator.index(color)
    place = operator.index(key)
    if not all(-(1 << 63) <= number < 1 << 63 for number in (chosen, place)):
        raise InvalidArgument(f"split: color {chosen} and key {place} must fit into 64 bits")
    number = group._reserve_group_ids(1) if group.rank == 0 else 0
    row = [color is None, chosen, place, number, group._can_split_gpus()]
    rows = group.allgather(np.array([row], np.int64), timeout=timeout)
    made = None
    if color is not None:
        number = int(rows[0, 3])
        same = [r for r in range(group.size) if not rows[r, 0] and rows[r, 1] == chosen]
        same.sort(key=lambda r: (int(rows[r, 2]), r))
        made = group._make(number, [group.ranks[r] for r in same])
    if rows[:, 4].all():
        group._split_gpus(made, timeout)
    return made


@answers_for_attributes
class Mesh:
    """The ranks as a grid with named axes, and a group along each of them.

    Every rank of the group makes the mesh. Consecutive ranks are adjacent along the last axis.

    Parameters:
        shape: the length of each axis; one length may be -1 and is then inferred. The product
            is the number of ranks.
        names: the name of each axis.
        group: the ranks to arrange; default the world.
        timeout: seconds to wait for the other ranks, default that of init().

    `mesh["dp"]` is this rank's group along one axis: the ranks that differ only in that coordinate.
    `mesh["dp", "tp"]` spans several axes, in the order of the mesh; all ranks must evaluate it
    before any rank uses that group.

    Raises:
        InvalidArgument: shape and names do not fit each other or the number of ranks.
        The errors of allreduce(), because the ranks communicate to make the groups.

    Example:
        >>> import pycollective as pc
        >>> _ = pc.init()
        >>> mesh = pc.Mesh((-1, 1), ("dp", "tp"))
        >>> mesh["tp"].size, mesh.coordinates
        (1, {'dp': 0, 'tp': 0})
        >>> pc.shutdown()
    """

    @advised
    def __init__(
        self,
        shape: Sequence[int],
        names: Sequence[str],
        *,
        group: Group | None = None,
        timeout: float | None = None,
    ) -> None:
        self.group = _core.world() if group is None else group
        self.names = tuple(names)
        self.shape = _fitted(tuple(map(operator.index, shape)), self.names, self.group.size)
        self._grid = np.arange(self.group.size).reshape(self.shape)
        place = np.unravel_index(self.group.rank, self.shape)
        self.coordinates = {name: int(index) for name, index in zip(self.names, place, strict=True)}
        self._groups: dict[tuple[str, ...], Group] = {}
        self._closed = False
        self._make([(name,) for name in self.names], timeout)

    def __getitem__(self, names: str | tuple[str, ...]) -> Group:
        wanted = (names,) if isinstance(names, str) else tuple(names)
        for name in wanted:
            if name not in self.names:
                raise InvalidArgument(f"mesh: no axis is called {name!r}; there are {', '.join(self.names)}")
        axes = tuple(name for name in self.names if name in wanted)
        if self._closed:
            raise InvalidArgument("mesh: it was closed; make it again, on all its ranks")
        if axes not in self._groups:
            self._make([axes], None)
        return self._groups[axes]

    def close(self) -> None:
        """Close all groups of the mesh; see Group.close().

        After that `mesh[...]` raises InvalidArgument.
        """
        self._closed = True  # set first, because a signal may interrupt the loop
        for group in self._groups.values():
            group.close()

    def rank_at(self, coordinates: dict[str, int]) -> int:
        """Return the rank at these coordinates, counted in the mesh's group.

        For an omitted axis, this rank's own coordinate is used.
        """
        unknown = set(coordinates) - set(self.names)
        if unknown:
            raise InvalidArgument(
                f"mesh: no axis is called {min(unknown)!r}; there are {', '.join(self.names)}"
            )
        place = tuple(coordinates.get(name, self.coordinates[name]) for name in self.names)
        for name, index, length in zip(self.names, place, self.shape, strict=True):
            if not 0 <= index < length:
                raise InvalidArgument(f"mesh: axis {name!r} goes from 0 to {length - 1}, not to {index}")
        return int(self._grid[place])

    def __repr__(self) -> str:
        axes = ", ".join(f"{name}={length}" for name, length in zip(self.names, self.shape, strict=True))
        return f"<pycollective.Mesh {axes}>"

    def _make(self, all_axes: list[tuple[str, ...]], timeout: float | None) -> None:
        """Make the groups along these combinations of axes.

        All ranks of the mesh agree on the numbers of all these groups in one exchange.
        """
        from zlib import crc32

        said = crc32(repr((self.shape, self.names, all_axes)).encode())
        first = self.group._reserve_group_ids(len(all_axes)) if self.group.rank == 0 else 0
        mine = np.array([first, said, -said, not self.group._can_split_gpus()])
        number, highest, lowest, late = self.group.allreduce(mine, "max", timeout=timeout).tolist()
        if highest != -lowest:
            raise CollectiveMismatch(
                f"mesh: the ranks have other shapes, names or axes; here shape {self.shape}, names {self.names}, "
                f"axes {all_axes}"
            )
        for axes, offset in zip(all_axes, itertools.count()):
            along = tuple(slice(None) if name in axes else self.coordinates[name] for name in self.names)
            ranks = self._grid[along].ravel()
            made = self.group._make(number + offset, [self.group.ranks[rank] for rank in ranks])
            if not late:
                self.group._split_gpus(made, timeout)
            self._groups[axes] = made


def _fitted(shape: tuple[int, ...], names: tuple[str, ...], size: int) -> tuple[int, ...]:
    if len(shape) != len(names) or len(set(names)) != len(names) or not shape:
        raise InvalidArgument(f"mesh: shape {shape} needs as many different names, not {names}")
    known = 1
    for length in shape:
        known *= length if length != -1 else 1
    if shape.count(-1) == 1 and known > 0 and size % known == 0:
        shape = tuple(size // known if length == -1 else length for length in shape)
        known = size
    if any(length < 1 for length in shape) or known != size:
        raise InvalidArgument(f"mesh: shape {shape} does not take exactly {size} ranks")
    return shape
