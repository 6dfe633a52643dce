"""Environment variables that exist as long as the world.

They are for libraries that read nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

__all__ = ["set_until_end"]

_set: dict[str, tuple[str | None, str]] = {}  # by name: the value before the world, and the value set for it


def set_until_end(values: Mapping[str, str], at_end: Callable[[Callable[[], None]], None]) -> None:
    """Set the variables until the end of the world, then remove or restore them.

    A variable that the program has changed meanwhile is kept. `at_end` is lifetime.at_end.
    """
    for name, value in values.items():
        there = os.environ.get(name)
        before, ours = _set.get(name, (there, None))
        if there != value:
            _set[name] = (before if there == ours else there), value
            os.environ[name] = value
    at_end(_take_back)


def _take_back() -> None:
    for name, (before, ours) in _set.items():
        if os.environ.get(name) != ours:
            continue
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
    _set.clear()
