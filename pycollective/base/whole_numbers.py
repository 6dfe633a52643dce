"""Checks arguments that count something.

The error for a value that is not an int names the argument.
"""

from __future__ import annotations

import contextlib
import operator
from typing import SupportsIndex

__all__ = ["whole_number"]


def whole_number(call: str, name: str, value: SupportsIndex) -> int:
    """Return `value` as an int. Raises TypeError if it is not one, e.g. for "2", 2.0, or a bool."""
    if not isinstance(value, bool):
        with contextlib.suppress(TypeError):  # raised also by an array that is not a single number
            return operator.index(value)
    hint = f": write int({value!r})" if isinstance(value, (str, float)) else ""
    raise TypeError(f"{call}({name}={value!r:.60}): {name} must be an int, not {type(value).__name__}{hint}")
