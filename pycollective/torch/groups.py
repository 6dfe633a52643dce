"""Resolves the `group` arguments of the torch functions: a Group or a torch.distributed group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pycollective import _core
from pycollective.errors import InvalidArgument

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

__all__ = ["group_of"]


def group_of(group: _core.Group | ProcessGroup | None) -> _core.Group:
    """Returns the world for None, a Group itself, or the Group of a process group of ours."""
    if group is None:
        return _core.world()
    if isinstance(group, _core.Group):
        return group
    ours = getattr(group, "group", None)
    if isinstance(ours, _core.Group):
        return ours
    raise InvalidArgument(
        f"group must be a pycollective.Group, a process group of the backend pycollective, or None for the world, not "
        f"{_kind(group)}"
    )


def _kind(group: object) -> str:
    # torch's own ProcessGroup has a method `name` that returns its backend
    name = getattr(group, "name", None)
    return f"a process group of the backend {name()}" if callable(name) else f"a {type(group).__name__}"
