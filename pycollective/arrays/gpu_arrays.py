"""New arrays on a GPU, for results that nobody gave memory for."""

from __future__ import annotations

import sys
from typing import Any

from pycollective.errors import Unsupported

__all__ = ["empty"]


def empty(like: Any, shape: tuple[int, ...]) -> Any:
    """An array of this shape beside `like`: of the same library, dtype and GPU. torch's tensors make their own."""
    if type(like).__module__.partition(".")[0] == "cupy":
        cupy = sys.modules["cupy"]
        with cupy.cuda.Device(like.device):
            return cupy.empty(shape, like.dtype)
    raise Unsupported(f"pycollective cannot make an array like this {type(like).__name__}: pass out=")
