"""Paddle tensors as a dtype's name, a shape and bytes. Paddle is imported only to rebuild them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from pycollective.errors import Unsupported
from pycollective.objects.object_codec.arrays import Bytes, nbytes_of

__all__ = ["is_paddle", "paddle_bytes", "paddle_name", "read_paddle"]

PADDLE_DTYPES = (
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64",
    "complex128", "float8_e4m3fn", "float8_e5m2",
)  # fmt: skip
MOST_AXES = 9  # Paddle's maximum
NO_VIEWS = 'paddle.set_flags({"FLAGS_use_stride_kernel": True}) is needed for that'


def is_paddle(value: object) -> bool:
    """Returns whether `value` is a paddle.Tensor. Subclasses do not count: they may have state."""
    paddle = (
        sys.modules.get("paddle") if "paddle.base" in sys.modules else None
    )  # without paddle.base, `paddle` may be a module of the program
    return paddle is not None and type(value) is getattr(paddle, "Tensor", None)


def paddle_name(x: Any) -> str:  # noqa: ANN401
    """Returns the name of `x.dtype`. Raises ValueError with the reason if it is unsupported."""
    name = next((name for name in PADDLE_DTYPES if x.dtype == getattr(sys.modules["paddle"], name)), None)
    if not x.is_dense():
        raise ValueError("a Paddle tensor without plain memory")
    if not x.place.is_cpu_place():
        raise ValueError(f"a Paddle tensor on {x.place}: send x.cpu()")
    if not x.stop_gradient:
        raise ValueError("a Paddle tensor that requires grad, which would be lost: send x.detach()")
    if name is None:
        raise ValueError(f"a Paddle tensor of {x.dtype!r}")
    return name


def paddle_bytes(x: Any) -> Bytes:  # noqa: ANN401
    """Returns the elements in C order: a view of contiguous memory, else a copy.

    Raises ValueError with the reason if `x` cannot be sent.
    """
    if x.size == 0:
        return np.empty(0, np.uint8)
    try:
        if not x.is_contiguous():  # Tensor.contiguous() would change the memory of x itself
            x = x.new_empty(x.shape).copy_(x.detach(), True)
        return np.asarray(np.from_dlpack(x.reshape((-1,)).view("uint8")), np.uint8)
    except RuntimeError as error:
        raise ValueError(f"a Paddle tensor that cannot be viewed as bytes: {NO_VIEWS}") from error


def read_paddle(name: str, shape: tuple[int, ...], data: Bytes) -> Any:  # noqa: ANN401
    """Returns a tensor that is a view of the first bytes of `data`.

    Raises ValueError as read_array() does, and Unsupported if Paddle is not installed.
    """
    if name not in PADDLE_DTYPES:
        raise ValueError("a tensor of no known dtype")
    if len(shape) > MOST_AXES:
        raise ValueError(f"a tensor of {len(shape)} axes")
    try:
        import paddle
        from paddle.utils.dlpack import from_dlpack

        dtype = getattr(paddle, name)
    except (ImportError, AttributeError) as error:
        raise Unsupported(
            f"a Paddle tensor of {name} came, and here: {error}. Install Paddle here, or let the sender send x.numpy()"
        ) from error
    try:
        return _tensor(from_dlpack, dtype, shape, data)
    except RuntimeError as error:
        raise Unsupported(
            f"a Paddle tensor of {name} came, and Paddle makes no view here: {NO_VIEWS}"
        ) from error


def _tensor(from_dlpack: Callable[[Bytes], Any], dtype: object, shape: tuple[int, ...], data: Bytes) -> Any:  # noqa: ANN401
    one = from_dlpack(np.empty(16, np.uint8)).view(dtype)
    nbytes = nbytes_of(shape, one.element_size(), len(data))
    if nbytes == 0:
        # raises for shapes in which Paddle would count the elements wrong
        np.empty(0, np.uint8).reshape(shape)
        return one.new_empty(shape)
    if str(dtype) == "paddle.bool" and data[:nbytes].max() > 1:
        raise ValueError("a tensor of bool with other bytes than 0 and 1")
    return from_dlpack(data[:nbytes]).view(dtype).reshape(shape)
