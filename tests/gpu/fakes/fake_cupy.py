"""The part of CuPy that makes an array on the GPU of the thread. FAKE."""

from __future__ import annotations

import contextlib
import threading
import types
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from fake_gpus import Array


class FakeCupy(types.ModuleType):
    def __init__(self) -> None:
        super().__init__("cupy")
        self.here = threading.local()
        self.cuda = types.SimpleNamespace(Device=contextlib.nullcontext)

        class ndarray(Array):
            __module__ = "cupy"
            device = 0

            @property
            def elements(self) -> npt.NDArray[Any]:
                base: npt.NDArray[Any] = self.host.reshape(-1)
                return np.lib.stride_tricks.as_strided(base, self.shape, self.strides)

            def __getitem__(self, key: slice) -> ndarray:
                return self.viewed(self.host[key], self.at + (key.start or 0) * self.dtype.itemsize)

            def reshape(self, shape: tuple[int, ...]) -> ndarray:
                return self.viewed(self.host.reshape(shape), self.at)

            def viewed(self, host: npt.NDArray[Any], at: int) -> ndarray:
                view = object.__new__(ndarray)
                view.__dict__ |= self.__dict__ | {"host": host, "shape": host.shape, "at": at}
                return view

            def fill(self, value: float) -> None:
                fake_cupy.here.gpu.drain(self.stream)
                self.host[...] = value

            def __setitem__(self, key: Any, source: Any) -> None:
                fake_cupy.here.gpu.drain(source.stream)  # as if the copy were queued there
                self.elements[key] = source.elements

        self.ndarray = ndarray

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        self.here.made = self.ndarray(self.here.gpu, np.zeros(shape), dtype=dtype)
        return cast(Array, self.here.made)


fake_cupy = FakeCupy()
