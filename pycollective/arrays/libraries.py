"""Array libraries, as far as pycollective.calls.packing needs to know them: one file and one row each.

The core takes the memory of most arrays without asking anybody. What is here is for the others: arrays that do not lie
in one block, that cannot be written, or that are no arrays at all, and for making new ones.
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


# Name, the module without which none of its arrays exist, how to get it. The first that owns an array has it.
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
    """The library of that name in LIBRARIES; imports it."""
    if name not in _loaded:
        _loaded[name] = next(load for known, _, load in LIBRARIES if known == name)()
    return _loaded[name]


def on_the_host(library: Library) -> Library:
    """For what cannot be done where its arrays lie, or is done beside arrays of the host: JAX copies them."""
    return by_name("jax") if library.name == "jax on a GPU" else library


def library_of(x: Any) -> Library:
    """The library that `x` belongs to. None of it is imported that the program has not imported itself."""
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
