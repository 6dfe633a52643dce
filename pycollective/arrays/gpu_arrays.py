"""Arrays on a GPU with the CUDA array interface: CuPy and other libraries except torch."""

from __future__ import annotations

import math
import sys
from typing import Any, NoReturn

import numpy as np

from pycollective.arrays.library import Memory, OneByOne, Shape
from pycollective.arrays.overlaps import Layout
from pycollective.errors import Unsupported

__all__ = ["GpuArrays", "empty", "is_on_gpu"]

INTERFACE = "__cuda_array_interface__"


def is_on_gpu(x: Any) -> bool:
    """Return whether an array of any library is in GPU memory."""
    # The type of a torch tensor does not show its device.
    kind = getattr(getattr(x, "device", None), "type", None)
    if isinstance(kind, str):
        return kind == "cuda"
    try:
        return hasattr(x, INTERFACE)
    except ValueError:  # raised by JAX for an array on several devices, which is copied to the host
        return False


def cupy_of(x: Any) -> Any:
    """Return the CuPy module if `x` is a CuPy array, or None."""
    return sys.modules["cupy"] if type(x).__module__.partition(".")[0] == "cupy" else None


def empty(like: Any, shape: Shape) -> Any:
    """Return an array of this shape with the library, dtype and GPU of `like`.

    torch has its own method.
    """
    if cupy := cupy_of(like):
        with cupy.cuda.Device(like.device):
            return cupy.empty(shape, like.dtype)
    raise Unsupported(
        f"pycollective cannot make another array on a GPU like this {type(like).__name__}: pass out="
    )


class GpuArrays(OneByOne):
    """Arrays with the CUDA array interface. Contiguous arrays are used in place.

    CuPy packs non-contiguous arrays on the GPU, on its current stream.
    """

    name = "gpu"
    mutable = True

    def owns(self, x: Any) -> bool:
        return hasattr(type(x), INTERFACE)

    def shape(self, x: Any) -> Shape:
        return tuple(getattr(x, INTERFACE)["shape"])

    def dtype(self, x: Any) -> str:
        typestr = getattr(x, INTERFACE)["typestr"]
        named = np.dtype(typestr)
        return str(named) if named.kind != "V" else str(getattr(x, "dtype", typestr))

    def nbytes(self, x: Any) -> int:
        return int(math.prod(self.shape(x)) * np.dtype(getattr(x, INTERFACE)["typestr"]).itemsize)

    def is_block(self, x: Any) -> bool:
        facts = getattr(x, INTERFACE)
        strides = facts.get("strides")
        itemsize, shape = np.dtype(facts["typestr"]).itemsize, tuple(facts["shape"])
        if strides is None or 0 in shape:
            return True
        rows = (itemsize * math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
        return all(n == 1 or have == row for n, have, row in zip(shape, strides, rows, strict=True))

    def order(self, x: Any) -> Shape:
        return tuple(range(len(self.shape(x))))

    def layout(self, x: Any) -> Layout:
        facts = getattr(x, INTERFACE)
        itemsize, shape = np.dtype(facts["typestr"]).itemsize, tuple(facts["shape"])
        strides = facts.get("strides") or tuple(
            itemsize * math.prod(shape[axis + 1 :]) for axis in range(len(shape))
        )
        return Layout(facts["data"][0], shape, tuple(strides), itemsize)

    def on(self, memory: Memory, like: Any, shape: Shape) -> Any:
        if not cupy_of(like):
            self._refuse(like)
        return empty(like, shape)  # not on `memory`, which is host memory

    def empty(self, like: Any, shape: Shape) -> Any:
        return empty(like, shape)

    def assign(self, target: Any, source: Any) -> None:
        if not cupy_of(target):
            self._refuse(target)
        target[...] = source

    def finished(self, block: Any, like: Any) -> Any:
        return block

    def moved(self, x: Any, source: int, target: int) -> Any:
        if not (cupy := cupy_of(x)):
            self._refuse(x)
        return cupy.moveaxis(x, source, target)

    def why_not_written(self, x: Any) -> str:
        return "is read-only" if getattr(x, INTERFACE)["data"][1] else ""

    def _refuse(self, x: Any) -> NoReturn:
        raise Unsupported(
            f"the {type(x).__name__} lies on a GPU, and pycollective cannot copy it there: pass an array that lies in "
            "one block, row by row, and axis=0"
        )
