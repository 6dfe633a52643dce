"""Compresses a bucket to 16 bits per element before sending, and expands it afterwards."""

# ruff: noqa: ANN401  arrays of any library
from __future__ import annotations

import sys
from typing import Any

import numpy as np

from pycollective.arrays.gpu_arrays import is_on_gpu
from pycollective.errors import InvalidArgument, Unsupported
from pycollective.runtime.heap import empty

__all__ = ["FORMATS", "cast", "check_format", "overflowed", "wire_for"]

FORMATS = {"bf16": "bfloat16", "f16": "float16"}
WIDE = ("float32", "float64")  # dtypes that are compressed; other dtypes are sent unchanged


def check_format(compression: str | None) -> None:
    """Raises InvalidArgument for an unknown format."""
    if compression is not None and compression not in FORMATS:
        raise InvalidArgument(
            f"GradientReducer: compression is None, {' or '.join(map(repr, FORMATS))}, not {compression!r}"
        )


def wire_for(flat: Any, dtype: str, compression: str | None) -> Any:
    """Returns a buffer for the compressed elements of `flat`, or None if none is needed.

    A buffer in host memory is in the shared heap.
    """
    if compression is None or dtype not in WIDE:
        return None
    wanted = FORMATS[compression]
    if is_on_gpu(flat):
        if (torch := sys.modules.get("torch")) is None or not isinstance(flat, torch.Tensor):
            raise Unsupported("GradientReducer: compression= of arrays on a GPU is for torch's alone")
        return torch.empty(flat.numel(), dtype=getattr(torch, wanted), device=flat.device)
    if not isinstance(flat, np.ndarray):
        return empty(flat.numel(), getattr(sys.modules["torch"], wanted))
    if wanted == "float16":
        return empty(flat.size, np.float16)
    try:
        import ml_dtypes
    except ImportError:
        raise Unsupported(
            'GradientReducer: compression="bf16" of NumPy and JAX arrays needs ml_dtypes: pip install ml_dtypes, or '
            'take "f16"'
        ) from None
    return empty(flat.size, ml_dtypes.bfloat16)


def overflowed(wire: Any, dtype: str, compression: str | None) -> bool:
    """Returns whether compression has made a float64 gradient infinite, the same on all ranks.

    For float32, loss scalers detect infinity. They are not used with float64.
    """
    if compression != "f16" or dtype != "float64":
        return False
    if is_on_gpu(wire):  # a wire on a GPU is always a torch tensor; the host waits for the result
        return bool(sys.modules["torch"].isinf(wire).any())
    return bool(np.isinf(wire if isinstance(wire, np.ndarray) else wire.numpy()).any())


def cast(target: Any, source: Any) -> None:
    """Copies elements to another dtype, rounded to nearest. Too large ones become infinite."""
    if isinstance(target, np.ndarray):
        with np.errstate(over="ignore"):  # the infinity is detected later, on every rank
            np.copyto(target, source, casting="unsafe")
    else:
        target.copy_(source)
