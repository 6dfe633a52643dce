"""Functions that the tests of pycollective.torch.functional share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from arrays import torch


def functional() -> Any:
    torch.set_num_threads(1)
    from pycollective.torch import functional

    return functional


def compiled(function: Callable[..., Any], backend: str = "aot_eager") -> Callable[..., Any]:
    torch.compiler.reset()  # graphs of an earlier check are for its world, which has ended
    made: Callable[..., Any] = torch.compile(function, backend=backend, fullgraph=True)
    return made


def numbers(rank: int, *shape: int) -> Any:
    """Returns small whole numbers, so that every sum is exact."""
    count = torch.Size(shape).numel()
    return (torch.arange(1.0, count + 1, dtype=torch.float64) * (rank + 1)).view(shape)


def number_of_the_world() -> int:
    from pycollective.torch.functional.live_groups import number_of

    return number_of(None)
