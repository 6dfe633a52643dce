"""JAX arrays on a GPU. The core writes only to new arrays that no other code references."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from pycollective.arrays.jax_arrays import JaxArrays
from pycollective.arrays.library import Memory, Shape

__all__ = ["Block", "JaxOnGpu"]

PROGRAMS = 1024  # compiled programs to keep; each program makes arrays of one shape, dtype and sharding


class Block:
    """A block to be written, which exports the CUDA array interface.

    JAX does not report the stream that it uses, so the host waits until the array is ready. For the
    same reason the interface names no stream, and the core waits until the call has finished.
    """

    def __init__(self, shape: Shape, dtype: Any, make: Callable[[], Any]) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.make = make  # allocates the array when it is first needed

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * int(self.dtype.itemsize)

    @property
    def array(self) -> Any:
        made = self.make()
        self.make = lambda: made
        return made

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.array.block_until_ready().unsafe_buffer_pointer() if self.nbytes else 0, False),
            "strides": None,
            "stream": None,
            "version": 3,
        }


class JaxOnGpu(JaxArrays):
    """jax.Array on one CUDA GPU.

    JaxArrays handles arrays on other devices and on several devices.
    """

    name = "jax on a GPU"

    def __init__(self) -> None:
        super().__init__()
        self._zeros = functools.lru_cache(PROGRAMS)(self._compile_zeros)
        self._copy = self._jax.jit(self._jax.numpy.copy)

    def _compile_zeros(self, shape: Shape, dtype: Any, sharding: Any) -> Callable[[], Any]:
        """Compile a program that makes an array of zeros.

        `jax.numpy.zeros()` takes ten times as long on the host as the compiled program.
        """
        with self._as_it_is(dtype):
            zeros = functools.partial(self._jax.numpy.zeros, shape, dtype)
            made: Callable[[], Any] = self._jax.jit(zeros, out_shardings=sharding).lower().compile()
        return made

    def owns(self, x: Any) -> bool:
        if not super().owns(x) or isinstance(x, self._jax.core.Tracer) or not x.is_fully_addressable:
            return False
        return len(x.devices()) == 1 and self._lies_on_gpu(x)

    def _lies_on_gpu(self, x: Any) -> bool:
        (device,) = x.devices()
        is_cuda = device.platform == "gpu" and "cuda" in device.client.platform_version.lower()
        return is_cuda and x.sharding.memory_kind in (None, "device")

    def on(self, memory: Memory, like: Any, shape: Shape) -> Block:
        return self.empty(like, shape)  # not on `memory`, which is host memory

    def empty(self, like: Any, shape: Shape) -> Block:
        dtype = like.dtype

        def make() -> Any:
            array, kinds = self._array(like), self._jax.sharding
            sharding = array.sharding
            # Other kinds of sharding are valid for one shape only.
            of_any_shape = isinstance(sharding, (kinds.SingleDeviceSharding, kinds.NamedSharding))
            if array.ndim != len(shape) or not of_any_shape:
                (device,) = array.devices()
                sharding = kinds.SingleDeviceSharding(device)
            return self._zeros(shape, dtype, sharding)()

        return Block(shape, dtype, make)

    def assign(self, target: Block, source: Any) -> None:
        with self._as_it_is(target.dtype):
            made = self._copy(self._array(source))
        target.make = lambda: made

    def finished(self, block: Any, like: Any) -> Any:
        result, sharding = self._array(block), self._array(like).sharding
        if result.ndim != len(like.shape) or result.sharding == sharding:
            return result
        with self._as_it_is(result.dtype):
            return self._jax.device_put(result, sharding)

    def moved(self, x: Any, source: int, target: int) -> Any:
        with self._as_it_is(x.dtype):
            return self._jax.numpy.moveaxis(self._array(x), source, target)

    def _array(self, x: Any) -> Any:
        return x.array if isinstance(x, Block) else x

    @contextlib.contextmanager
    def _as_it_is(self, dtype: Any) -> Iterator[None]:
        """Execute eagerly, even in a JAX trace, and keep 64-bit dtypes despite JAX's default."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._jax.ensure_compile_time_eval())
            if np.dtype(dtype) in (np.float64, np.int64, np.uint64, np.complex128):
                jax = self._jax
                enable_x64 = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64
                stack.enter_context(enable_x64(True))
            yield
