"""Replaces functions of torch until a block ends."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from pycollective.errors import Unsupported

__all__ = ["replace"]


def replace(undone: contextlib.ExitStack, owner: Any, name: str, new: Callable[..., Any]) -> None:  # noqa: ANN401
    """Replaces an attribute that a module or class itself defines. `undone` restores it."""
    try:
        old = vars(owner)[name]
    except KeyError:
        raise Unsupported(
            f"pycollective.torch.auto: torch {torch.__version__} has no {owner.__name__}.{name}: tested with 2.13"
        ) from None
    setattr(owner, name, new)
    undone.callback(setattr, owner, name, old)
