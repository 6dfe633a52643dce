"""The array libraries under test, one small class for each.

To test another one, add a class and a row in LIBRARIES.
"""

from __future__ import annotations

import warnings
from typing import Any

import ml_dtypes
import numpy as np

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch's own import warnings are not ours
    try:
        import torch
    except ImportError:
        torch = None

FLOATS = ("float32", "float64")
SHORT_FLOATS = ("float16", "bfloat16")
INTEGERS = ("int32", "int64", "uint8")
DTYPES = FLOATS + SHORT_FLOATS + INTEGERS


def numpy_dtype(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)


class Numpy:
    name = "numpy"

    def make(self, values: Any, dtype: str) -> Any:
        return np.array(values).astype(numpy_dtype(dtype), order="C")

    def to_numpy(self, x: Any) -> np.ndarray[Any, Any]:
        return x

    def transposed(self) -> Any:
        return np.zeros((3, 4)).T

    def expanded(self) -> Any:
        return np.lib.stride_tricks.as_strided(np.zeros(1), (4,), (0,))

    def on_other_device(self) -> Any:
        return FarAway()


class FarAway:
    """An array that claims to be on a GPU."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def __dlpack__(self, **_: Any) -> Any:
        raise AssertionError("must not be exported")


class Dlpack:
    """An array that offers only DLPack, as NumPy exports `x`."""

    def __init__(self, x: Any) -> None:
        self.x = x

    def __dlpack__(self, **how: Any) -> Any:
        return self.x.__dlpack__(**how)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


class OldDlpack(Dlpack):
    """The same for DLPack before 1.0."""

    def __dlpack__(self) -> Any:
        return self.x.__dlpack__()


class CopiedDlpack(Dlpack):
    """An exporter that always copies, and reports that it did."""

    def __dlpack__(self, **how: Any) -> Any:
        return super().__dlpack__(**{**how, "copy": True})


class Torch:
    name = "torch"

    def make(self, values: Any, dtype: str) -> Any:
        return torch.tensor(np.array(values).tolist(), dtype=getattr(torch, dtype)).reshape(np.shape(values))

    def to_numpy(self, x: Any) -> np.ndarray[Any, Any]:
        if x.dtype == torch.bfloat16:
            return x.detach().view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
        return x.detach().numpy()

    def transposed(self) -> Any:
        return torch.zeros(3, 4).T

    def expanded(self) -> Any:
        return torch.zeros(1).expand(4)

    def on_other_device(self) -> Any:
        return torch.zeros(3, device="meta")


LIBRARIES: list[Any] = [Numpy()] + ([Torch()] if torch is not None else [])
