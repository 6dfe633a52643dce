"""JAX arrays: they are immutable, so a result is always a new array."""

from __future__ import annotations

from typing import Any

import numpy as np

from pycollective.arrays.library import Memory, Shape
from pycollective.arrays.numpy_arrays import NumpyArrays
from pycollective.errors import InvalidArgument, Unsupported

__all__ = ["JaxArrays"]


class JaxArrays(NumpyArrays):
    """jax.Array. Its blocks are NumPy arrays.

    A block shares the memory of an array on the CPU. For an array elsewhere it is a host copy.
    """

    name = "jax"
    mutable = False

    def __init__(self) -> None:
        import jax

        self._jax = jax

    def owns(self, x: Any) -> bool:
        return isinstance(x, self._jax.Array)

    def array(self, x: Any) -> Any:
        """Return `x` as a read-only NumPy array, or `x` itself if it is one."""
        if isinstance(x, np.ndarray):
            return x
        if isinstance(x, self._jax.core.Tracer):
            raise InvalidArgument(
                "the array is being traced by jax.jit or a like transformation: call outside of it"
            )
        if not x.is_fully_addressable:
            raise Unsupported(
                "the array is spread over several processes by JAX itself: pass this process's part"
            )
        self._check_no_keys(x)
        return np.asarray(x)

    def _check_no_keys(self, x: Any) -> None:
        if isinstance(x, self._jax.Array) and self._jax.dtypes.issubdtype(x.dtype, self._jax.dtypes.extended):
            raise Unsupported(
                f"an array of random keys ({x.dtype}) has no numbers that could be moved: pass jax.random.key_data(x), "
                "and make keys of what comes by jax.random.wrap_key_data()"
            )

    def shape(self, x: Any) -> Shape:
        self._check_no_keys(x)
        return tuple(x.shape)

    def nbytes(self, x: Any) -> int:
        self._check_no_keys(x)
        return super().nbytes(x)

    def is_block(self, x: Any) -> bool:
        return False

    def on(self, memory: Memory, like: Any, shape: Shape) -> Any:
        return super().on(memory, like, shape)

    def assign(self, target: Any, source: Any) -> None:
        np.copyto(target, self.array(source), casting="no")

    def finished(self, block: Any, like: Any) -> Any:
        result = self._jax.numpy.asarray(block)
        return self._jax.device_put(result, like.sharding) if self._is_elsewhere(like) else result

    def _is_elsewhere(self, x: Any) -> bool:
        return isinstance(x, self._jax.Array) and {device.platform for device in x.devices()} != {"cpu"}

    def moved(self, x: Any, source: int, target: int) -> Any:
        return np.moveaxis(self.array(x), source, target)

    def why_not_written(self, x: Any) -> str:
        return "is a JAX array, which cannot be written: take the returned array, without out="
