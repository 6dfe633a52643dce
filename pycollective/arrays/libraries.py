"""The array libraries that pycollective.calls.packing supports: one module and one row for each.

The core uses the memory of most arrays directly. This module serves the other arguments: arrays
that are not contiguous or cannot be written, and numbers. It also makes new arrays.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from pycollective.arrays.library import Library
from pycollective.errors import InvalidArgument

__all__ = ["Library", "by_name", "library_of", "on_the_host"]


def _numbers() -> Library:
    from pycollective.arrays.numbers import Numbers

    return Numbers()


def _torch() -> Library:
    from pycollective.arrays.torch_tensors import TorchTensors

    return TorchTensors()


def _paddle() -> Library:
    from pycollective.arrays.paddle_tensors import PaddleTensors

    return PaddleTensors()


def _jax() -> Library:
    from pycollective.arrays.jax_arrays import JaxArrays

    return JaxArrays()


def _jax_on_gpu() -> Library:
    from pycollective.arrays.jax_on_gpu import JaxOnGpu

    return JaxOnGpu()


def _numpy() -> Library:
    from pycollective.arrays.numpy_arrays import NumpyArrays

    return NumpyArrays()


def _gpu() -> Library:
    from pycollective.arrays.gpu_arrays import GpuArrays

    return GpuArrays()


def _exporters() -> Library:
    from pycollective.arrays.exporters import Exporters

    return Exporters()


# Each row has a name, the module without which no array of the library can exist, and the
# constructor. The first library that owns an array is used.
LIBRARIES: list[tuple[str, str, Callable[[], Library]]] = [
    ("numpy", "numpy", _numpy),
    ("numbers", "builtins", _numbers),
    ("torch", "torch", _torch),
    ("paddle", "paddle.base", _paddle),
    ("jax on a GPU", "jax", _jax_on_gpu),
    ("jax", "jax", _jax),
    ("gpu", "builtins", _gpu),
    ("exporters", "builtins", _exporters),
]
_loaded: dict[str, Library] = {}


def by_name(name: str) -> Library:
    """Return the library of that name in LIBRARIES, and import it if necessary."""
    if name not in _loaded:
        _loaded[name] = next(load for known, _, load in LIBRARIES if known == name)()
    return _loaded[name]


def on_the_host(library: Library) -> Library:
    """Return the library for host work on arrays of `library`, e.g. in a call with host arrays.

    JAX arrays on a GPU are then copied to the host.
    """
    return by_name("jax") if library.name == "jax on a GPU" else library


def library_of(x: Any) -> Library:
    """Return the library that `x` belongs to.

    This imports no library that the program has not imported.
    """
    for name, module, _ in LIBRARIES:
        if module in sys.modules and by_name(name).owns(x):
            return by_name(name)
    why = f"{type(x).__name__} is no array, number or list of numbers"
    if isinstance(x, (list, tuple, dict)):
        why += ": make one call for each array of it, or stack them (numpy.stack)"
    elif x is None:
        why += ": is it the gradient of a parameter that was not used?"
    elif hasattr(x, "__next__"):
        why += ": pass list(x)"
    raise InvalidArgument(why)
