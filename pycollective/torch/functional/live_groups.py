"""Numbers of groups: an operation in a graph refers to its group by a number.

The low 16 bits of a number are the size of the group. So the shape of a result depends only on the
arguments of the operation, as the caches of compiled graphs on disk require.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import torch

from pycollective.errors import CollectiveError, NotInitialized
from pycollective.torch.groups import group_of

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from pycollective._core import Group

__all__ = ["group_at", "number_of", "size_at"]

_SIZE_BITS = 16  # a world has at most 65,535 ranks
_live: dict[int, Group] = {}
# Numbers are never reused: a graph of an ended world must not find a group of the next one.
_counter = itertools.count()


@torch.compiler.assume_constant_result
def number_of(group: Group | ProcessGroup | None) -> int:
    """Returns the number of a group, which is valid while the group's world exists.

    torch.compile writes the number into the graph.
    """
    found = group_of(group)
    for number, each in list(_live.items()):  # a list, because other threads may add groups meanwhile
        if each is found:
            return number
    for number, each in list(_live.items()):
        if _has_ended(each):
            _live.pop(number, None)
    number = next(_counter) << _SIZE_BITS | found.size
    _live[number] = found
    return number


def group_at(number: int) -> Group:
    """Returns the group that has this number from number_of()."""
    group = _live.get(number)
    if group is None or _has_ended(group):
        raise NotInitialized(
            "the group of this call belongs to a world that has ended: make the call anew in the new world; a function "
            "that was compiled with it needs torch.compiler.reset() first"
        )
    return group


def size_at(number: int) -> int:
    """Returns the size of the group with this number, also after its world has ended."""
    return number & ((1 << _SIZE_BITS) - 1)


def _has_ended(group: Group) -> bool:
    try:
        return not group.ranks
    except CollectiveError:  # the group is closed, or belongs to the parent of this process
        return True
