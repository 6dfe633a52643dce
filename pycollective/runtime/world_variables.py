"""Variables of the environment that are there as long as the world, for libraries that ask them alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

__all__ = ["set_until_end"]

_set: dict[
    str, tuple[str | None, str]
] = {}  # by name: what was there before the world, and what is there since


def set_until_end(values: Mapping[str, str], at_end: Callable[[Callable[[], None]], None]) -> None:
    """Sets them. With the world they go, or become what they were, but for those that somebody has changed since.

    `at_end`: lifetime.at_end.
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
