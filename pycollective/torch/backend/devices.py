"""The device of the tensors of a call: all must be on the CPU, or all on one GPU."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from pycollective.errors import InvalidArgument

__all__ = ["check_one_device", "device_of", "why_not_one_device"]


def device_of(tensors: Iterable[torch.Tensor]) -> torch.device | None:
    """Returns the GPU of the first tensor that is on a GPU, or None if all are on the CPU."""
    return next((tensor.device for tensor in tensors if tensor.is_cuda), None)


def check_one_device(function: str, tensors: Iterable[torch.Tensor]) -> None:
    """Raises InvalidArgument for tensors on several devices before anything is sent.

    This is for lists that the core does not receive as lists, because they are copied or become
    several calls.
    """
    if why := why_not_one_device(function, tensors):
        raise InvalidArgument(why)


def why_not_one_device(function: str, tensors: Iterable[torch.Tensor]) -> str:
    """Returns why these tensors cannot be in one call, or an empty text if they can."""
    devices = dict.fromkeys(tensor.device for tensor in tensors)
    if len(devices) < 2:
        return ""
    return f"{function}: its tensors lie on {' and '.join(map(str, devices))}: one call takes those of one device"
