"""The ints of a dict of numbers in a reduction.

The core receives each int as an array of words; see exact_ints.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pycollective.arrays.exact_ints import from_words, to_words
from pycollective.arrays.numbers import Numbers

__all__ = ["IntMembers"]


class IntMembers(Numbers):
    """The library for ints in a reduction that encodes them."""

    def __init__(self, function: str, op: str) -> None:
        self._function = function
        self._op = op

    def array(self, x: Any) -> Any:
        """Return the words of `x`, or `x` itself if it is already an array of words."""
        return x if isinstance(x, np.ndarray) else to_words(x, self._op)

    def finished(self, block: Any, like: Any) -> Any:
        return from_words(self._function, block, like, self._op)
