"""Arrays in memory that the ranks of a host share: collectives read them without copying.

    g = pc.empty(1 << 20, "float32")       # NumPy
    t = pc.zeros((1024, 1024), torch.float32)
    with pc.heap_arrays():
        x = np.load("x.npy")               # any code that makes NumPy arrays

They are ordinary arrays. If no rank shares memory with this one (a world of one, TCP), and in a
forked child, their memory is ordinary too. What a forked child writes to an array of its parent is
not visible to the parent; until the child writes to a page, it sees what the parent writes there.
Freed memory is reused. Reserved memory stays reserved until the world has ended and its arrays are
freed.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from pycollective import _core
from pycollective.base.advice import advised
from pycollective.errors import InvalidArgument

__all__ = ["HeapUsage", "empty", "empty_like", "heap_arrays", "usage", "zeros"]


class HeapUsage(NamedTuple):
    """Bytes of this rank's heap: reserved from the system, and used by arrays."""

    reserved_nbytes: int
    used_nbytes: int


def usage() -> HeapUsage:
    """Return the size of the current world's heap.

    It is zero if there is no world, or if no rank shares memory with this one.

    Example:
        >>> from pycollective.runtime import heap
        >>> heap.usage().used_nbytes
        0
    """
    found = _core._heap_usage()
    return HeapUsage(0, 0) if found is None else HeapUsage(*found)


def _sizes(shape: int | tuple[int, ...]) -> tuple[int, ...]:
    sizes = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    if any(size < 0 for size in sizes):
        raise InvalidArgument(f"pc.empty: a shape has no negative size: {sizes}")
    return tuple(int(size) for size in sizes)


def _is_torch(dtype: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(dtype, torch.dtype)


def _torch_empty(sizes: tuple[int, ...], dtype: Any) -> Any:  # noqa: ANN401  torch is imported only where it is used
    import torch

    count = math.prod(sizes)
    block = _core._heap_block(count * dtype.itemsize) if count else None
    if block is None:
        return torch.empty(sizes, dtype=dtype)
    return torch.frombuffer(block, dtype=dtype, count=count).view(sizes)


@advised
def empty(shape: int | tuple[int, ...], dtype: Any = float) -> Any:  # noqa: ANN401  an array of the dtype's library
    """Return an array in memory that the ranks of this host share. Its contents are unspecified.

    Parameters:
        shape: the length of each axis, or a single length.
        dtype: anything that NumPy accepts as a dtype without objects, or a torch dtype.

    Returns:
        A NumPy array, or a torch tensor for a torch dtype. It is contiguous and aligned to 128
        bytes, or to 2 MiB if it has at least that size. Its memory lives as long as any array on
        it, also beyond shutdown().

    Raises:
        InvalidArgument: a negative size, or a dtype that holds Python objects.
        CollectiveError: the host lacks memory for it; the message has the requested and the
            available size.

    Example:
        >>> import pycollective as pc
        >>> x = pc.empty((2, 3), "float32")
        >>> x.shape, str(x.dtype)
        ((2, 3), 'float32')
    """
    sizes = _sizes(shape)
    if _is_torch(dtype):
        return _torch_empty(sizes, dtype)
    kind = np.dtype(dtype)
    if kind.hasobject:
        raise InvalidArgument(f"pc.empty: dtype {kind} holds Python objects, which other ranks cannot read")
    count = math.prod(sizes)
    block = _core._heap_block(count * kind.itemsize) if count and kind.itemsize else None
    if block is None:
        return np.empty(sizes, kind)
    return np.frombuffer(memoryview(block), np.uint8).view(kind).reshape(sizes)


@advised
def zeros(shape: int | tuple[int, ...], dtype: Any = float) -> Any:  # noqa: ANN401
    """Return an array like that of empty(), filled with zeros.

    Example:
        >>> import pycollective as pc
        >>> pc.zeros(3)
        array([0., 0., 0.])
    """
    array = empty(shape, dtype)
    array[...] = 0
    return array


@advised
def empty_like(x: Any) -> Any:  # noqa: ANN401
    """Return an empty() array with the shape and dtype of `x`, a NumPy array or a torch tensor.

    Example:
        >>> import numpy as np, pycollective as pc
        >>> pc.empty_like(np.ones((2, 2), np.int32)).dtype
        dtype('int32')
    """
    return empty(tuple(x.shape), x.dtype)


@contextlib.contextmanager
def heap_arrays() -> Iterator[None]:
    """Make NumPy allocate in memory that the ranks of this host share, until the `with` block ends.

    Use it for arrays of any shape and dtype that other code makes: np.arange, np.load, the result
    of an expression. Existing arrays are not moved. The block applies only to the current context
    (contextvars) of its thread or task. Contexts that are copied inside the block continue to
    allocate shared memory after its end: those of asyncio tasks started inside, of
    contextvars.copy_context(), and of threads that inherit their context (Python 3.14, -X
    thread_inherit_context). NumPy allocates temporary results in shared memory too (NEP 49), so
    limit the block to the code that makes the arrays for collectives.

    An array's memory lives as long as any array on it, also beyond the block and beyond shutdown().
    If no rank shares memory with this one (a world of one, TCP, no world), and in a forked child,
    it is NumPy's ordinary memory.

    Raises:
        MemoryError: raised by NumPy in the block: the host lacks memory for an array. The error
            of pc.empty() has more details.

    Example:
        >>> import numpy as np, pycollective as pc
        >>> _ = pc.init()
        >>> with pc.heap_arrays():
        ...     x = np.arange(3) * 2
        >>> pc.allreduce(x)
        array([0, 2, 4])
        >>> pc.shutdown()
    """
    handler = _core._heap_handler()
    if handler is None:
        yield
        return
    previous = _core._set_numpy_handler(handler)
    del handler  # the arrays keep the handler alive
    try:
        yield
    finally:
        _core._set_numpy_handler(previous)
