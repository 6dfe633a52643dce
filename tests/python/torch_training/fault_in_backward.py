"""A step of backward that raises."""

from __future__ import annotations

from typing import Any

from arrays import torch


class Raises(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Any) -> Any:
        return x.clone()

    @staticmethod
    def backward(context: Any, gradient: Any) -> Any:
        raise KeyError("a fault in backward")
