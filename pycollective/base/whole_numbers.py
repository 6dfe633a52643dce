"""Arguments that count something: what is no int is refused by name, at the edge."""

from __future__ import annotations

import contextlib
import operator
from typing import SupportsIndex

__all__ = ["whole_number"]


def whole_number(call: str, name: str, value: SupportsIndex) -> int:
    """`value` as an int. TypeError: it is none, as "2" from a command line, 2.0, or a bool."""
    if not isinstance(value, bool):
        with contextlib.suppress(TypeError):  # of an array, too, that is no single number
            return operator.index(value)
    hint = f": write int({value!r})" if isinstance(value, (str, float)) else ""
    raise TypeError(f"{call}({name}={value!r:.60}): {name} must be an int, not {type(value).__name__}{hint}")
