"""Arrays of any library as blocks.

A block is the array itself if the core can use it in place, else a copy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pycollective import _core
from pycollective.arrays.gpu_arrays import is_on_gpu
from pycollective.arrays.libraries import library_of, on_the_host
from pycollective.arrays.library import Library, Shape
from pycollective.calls.scratch import Scratch
from pycollective.errors import CollectiveError, InvalidArgument

__all__ = ["block_of", "check_block", "check_pairs", "copy_of", "library_for", "unfilled", "writable_for"]


def library_for(function: str, argument: str, x: Any, out: Any = None) -> Library:
    """Return the library of `x`, for a call that returns a new array or writes to `out`."""
    try:
        library = library_of(x)
        library.shape(x)  # raises if this process cannot read `x`
        return library if out is None or is_on_gpu(out) else on_the_host(library)
    except CollectiveError as error:
        error.args = (f"{function}: {argument}: {error}",)
        raise


def writable_for(function: str, argument: str, x: Any) -> Library:
    library = library_for(function, argument, x)
    if why := library.why_not_written(x):
        raise InvalidArgument(f"{function}: {argument} {why}")
    return library


def check_pairs(function: str, argument: str, shape: Shape, op: Any) -> None:
    """Refuse an array if its last axis does not hold (value, location) pairs.

    The core cannot check this, because it receives a flat sequence of elements.
    """
    if op in ("minloc", "maxloc") and shape[-1:] != (2,):
        raise InvalidArgument(
            f'{function}: {argument} of shape {shape} has no pairs for "{op}": its last axis must have length 2, '
            "for value and location"
        )


def check_block(
    function: str, argument: str, library: Library, x: Any, op: Any = None, *, is_block: bool | None = None
) -> None:
    """Raise the core's error for an unsupported element type, operation, mask or device.

    `is_block` is library.is_block(x) if the caller already knows it.
    """
    if is_block is None:
        is_block = library.is_block(x)
    block = x if is_block else library.empty(x, (2,))
    _core._check(function, argument, block, op)


def block_of(library: Library, x: Any, scratch: Scratch) -> Any:
    """Return `x` itself if the core can use it in place, else a copy."""
    return x if library.is_block(x) else copy_of(library, x, scratch)


def copy_of(library: Library, x: Any, scratch: Scratch) -> Any:
    block = unfilled(library, x, library.shape(x), scratch)
    library.assign(block, x)
    return block


def unfilled(library: Library, like: Any, shape: Shape, scratch: Scratch) -> Any:
    # `like` may have another number of elements than `shape`, so only its element size is used
    nbytes = library.nbytes(like)
    have = int(np.prod(library.shape(like), dtype=np.int64))
    itemsize = nbytes // have if have else library.nbytes(library.empty(like, (1,)))
    return library.on(scratch.take(int(np.prod(shape, dtype=np.int64)) * itemsize), like, shape)
