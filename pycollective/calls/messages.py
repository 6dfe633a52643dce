"""Receives messages with an unknown sender, dtype or shape."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

import numpy as np

from pycollective._core import ANY_SOURCE
from pycollective.base.clock import Clock
from pycollective.errors import Unsupported

if TYPE_CHECKING:
    from pycollective._core import Group

__all__ = ["Incoming"]


class Incoming:
    """One message of `peer`, or a list of arrays with one message per dtype.

    If `peer` is ANY_SOURCE, the sender of the first message is the source of the rest of the list.
    """

    def __init__(self, group: Group, peer: int, tag: int, timeout: float | None) -> None:
        self.source = peer
        self._group = group
        self._tag = tag
        self._clock = Clock(timeout)

    def into(self, block: Any, digest: int = 0) -> None:
        """Receive into a block or a list of blocks. `digest` identifies the list."""
        if self.source != ANY_SOURCE:
            self._group._recv(block, self.source, self._tag, self._clock.left_s(), digest)
            return
        source, _, _, token = self._find()
        self._group._receive(block, token, digest)
        self.source = source

    def as_it_comes(self) -> Any:
        """Receive into a new NumPy array."""
        source, dtype, shape, token = self._find()
        try:
            block = np.empty(shape, _dtype_called(dtype, source))
        except BaseException:
            del token  # return the message to the queue: the traceback would keep the token alive
            raise
        self.source = source
        return self._group._receive(block, token, None)

    def _find(self) -> tuple[int, str, tuple[int, ...], object]:
        return self._group._find(self.source, self._tag, self._clock.left_s())


def _dtype_called(name: str, source: int) -> np.dtype[Any]:
    """Return NumPy's dtype of that name.

    The name is one of the core's, or the str() of a dtype that only the sender's library supports.
    """
    if not name:
        raise Unsupported(
            f"recv: what rank {source} sends does not say what it is, or would need more than 1024 bytes to: give an "
            "array instead of None"
        )
    try:
        if name.startswith(("bfloat16", "float8_")):
            import ml_dtypes

            known: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
            return known
        dtype: np.dtype[Any] = np.dtype(ast.literal_eval(name) if name.startswith(("[", "{", "(")) else name)
    except ImportError as error:
        raise Unsupported(
            f"recv: rank {source} sends {name}, which NumPy has with ml_dtypes only, and here: {error}. Install it, "
            "or give an array of another library instead of None"
        ) from error
    except (ValueError, TypeError, SyntaxError, AttributeError, RecursionError, MemoryError) as error:
        raise Unsupported(
            f"recv: rank {source} sends {name!r}, which is no dtype to NumPy here: {error}"
        ) from error
    if dtype.hasobject:
        raise Unsupported(f"recv: rank {source} sends {name!r}, a type with Python objects as elements")
    return dtype
