"""Environment variables that are set as long as the world exists.

They are for libraries that read rank and size only from the environment.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

__all__ = ["set_until_end"]

# by name: the value before the world (None if unset), and the value that was set for the world
_set: dict[str, tuple[str | None, str]] = {}


def set_until_end(values: Mapping[str, str], at_end: Callable[[Callable[[], None]], None]) -> None:
    """Set the variables until the world ends, and then restore their previous state.

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
