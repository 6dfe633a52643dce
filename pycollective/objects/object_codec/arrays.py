"""Arrays and tensors as a dtype's name, a shape and bytes. Decoding copies nothing.

Dtypes with Python objects are not supported. torch and ml_dtypes are imported only to rebuild their
own arrays.
"""

from __future__ import annotations

import math
import re
import sys
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from pycollective.errors import Unsupported

if TYPE_CHECKING:
    import torch

__all__ = [
    "Bytes",
    "array_bytes",
    "dtype_name",
    "is_on_gpu",
    "is_tensor",
    "on_gpu_if_any",
    "read_array",
    "read_tensor",
    "tensor_bytes",
    "tensor_name",
]

Bytes: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]

# NumPy's own dtypes in text form. Not included are object, structured dtypes (their text lacks the
# fields), and longdouble, which differs between machines.
NUMPY_DTYPE = re.compile(
    r"[<>|](?:b1|[iu][1248]|f[248]|c8|c16|[SU][1-9]\d{0,8}|[mM]8(?:\[\d{0,9}[A-Za-z]{1,2}\])?)"
)
ML_DTYPES = (
    "bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2",
    "float8_e5m2fnuz", "float8_e8m0fnu", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn",
    "int2", "int4", "uint2", "uint4",
)  # fmt: skip
TORCH_DTYPES = (
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32",
    "float64", "complex64", "complex128", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
)  # fmt: skip
MOST_UNICODE = 0x10FFFF


def dtype_name(dtype: np.dtype[Any]) -> str | None:
    """Returns the name of `dtype`, or None if its arrays hold more than numbers, dates and text."""
    if dtype.type.__module__ == "ml_dtypes":
        return dtype.name if dtype.name in ML_DTYPES else None
    return dtype.str if dtype.names is None and NUMPY_DTYPE.fullmatch(dtype.str) else None


def array_bytes(x: np.ndarray[Any, Any]) -> Bytes:
    """Returns the elements in C order: a view of contiguous memory, else a copy."""
    return np.ascontiguousarray(x).reshape(-1).view(np.uint8)


def read_array(name: str, shape: tuple[int, ...], data: Bytes) -> np.ndarray[Any, Any]:
    """Returns an array that is a view of the first bytes of `data`.

    Raises ValueError if the name is unknown, or if the bytes are too few or not valid elements.
    """
    dtype = _numpy_dtype(name)
    x: np.ndarray[Any, Any] = data[: nbytes_of(shape, dtype.itemsize, len(data))].view(dtype).reshape(shape)
    if dtype.kind == "b" and x.size and x.view(np.uint8).max() > 1:
        raise ValueError("an array of bool with other bytes than 0 and 1")
    if dtype.kind == "U" and x.size and (code_points(x) > MOST_UNICODE).any():
        raise ValueError("an array of text with numbers that are no characters")
    return x


def code_points(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return x.reshape(-1).view(np.dtype(np.uint32).newbyteorder(x.dtype.byteorder))


def nbytes_of(shape: tuple[int, ...], itemsize: int, most: int) -> int:
    """Returns an array's size in bytes. Raises ValueError if the shape is invalid or too large."""
    if not all(type(extent) is int and extent >= 0 for extent in shape):
        raise ValueError(f"{shape} is no shape")
    nbytes = math.prod(shape) * itemsize
    if nbytes > most:
        raise ValueError(f"an array of {nbytes} bytes, of which {most} are there")
    return nbytes


def _numpy_dtype(name: str) -> np.dtype[Any]:
    if NUMPY_DTYPE.fullmatch(name):
        return np.dtype(name)
    if name not in ML_DTYPES:
        raise ValueError("an array of no known dtype")
    try:
        import ml_dtypes

        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    except (ImportError, AttributeError) as error:
        raise Unsupported(
            f"an array of {name} came, which ml_dtypes has, and here: {error}. Install it"
        ) from error
    return dtype


def is_tensor(value: object) -> bool:
    """Returns whether `value` is a torch.Tensor. Subclasses do not count: they may have state."""
    torch = sys.modules.get("torch")
    return torch is not None and type(value) is getattr(torch, "Tensor", None)


def tensor_name(x: torch.Tensor) -> str:
    """Returns the name of `x.dtype`. Raises ValueError with the reason if it is unsupported."""
    name = str(x.dtype).removeprefix("torch.")
    if x.device.type not in ("cpu", "cuda"):
        raise ValueError(f"a tensor in the memory of {x.device}: send x.cpu()")
    if x.requires_grad:
        raise ValueError("a tensor that requires grad, which would be lost: send x.detach()")
    if str(x.layout) != "torch.strided" or x.is_nested or name not in TORCH_DTYPES:
        raise ValueError(f"a tensor of {x.dtype} and {x.layout}")
    return name


def is_on_gpu(x: torch.Tensor) -> bool:
    """Returns whether `x` is in the memory of a CUDA GPU."""
    return str(x.device.type) == "cuda"


def on_gpu_if_any(x: torch.Tensor) -> torch.Tensor:
    """Returns a copy of `x` on the current GPU of torch in this thread.

    Returns `x` itself if there is no GPU, or if a fork has made it unusable.
    """
    import torch

    if not torch.cuda.is_available() or torch.cuda._is_in_bad_fork():
        return x
    return x.to(torch.device("cuda", torch.cuda.current_device()))


def tensor_bytes(x: torch.Tensor) -> Bytes:
    """Returns the elements in C order: a view of contiguous host memory, else a copy.

    A copy from a GPU runs on that GPU's current stream.
    """
    import torch

    data: Bytes = x.cpu().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8).numpy()
    return data


def read_tensor(name: str, shape: tuple[int, ...], data: Bytes) -> torch.Tensor:
    """Returns a tensor that is a view of the first bytes of `data`.

    Raises ValueError as read_array() does, and Unsupported if torch is not installed.
    """
    if name not in TORCH_DTYPES:
        raise ValueError("a tensor of no known dtype")
    try:
        import torch

        dtype: torch.dtype = getattr(torch, name)
    except (ImportError, AttributeError) as error:
        raise Unsupported(
            f"a torch tensor of {name} came, and here: {error}. Install PyTorch here, or let the sender send x.numpy()"
        ) from error
    nbytes = nbytes_of(shape, dtype.itemsize, len(data))
    if nbytes == 0:
        # raises for shapes on which torch would crash, or count the elements wrong
        np.empty(0, np.uint8).reshape(shape)
        return torch.empty(shape, dtype=dtype)
    if dtype == torch.bool and data[:nbytes].max() > 1:
        raise ValueError("a tensor of bool with other bytes than 0 and 1")
    return torch.from_numpy(data[:nbytes]).view(dtype).reshape(shape)
