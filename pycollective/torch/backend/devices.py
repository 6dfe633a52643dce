"""Where the tensors of a call lie: all on the CPU, or all on one GPU."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from pycollective.errors import InvalidArgument

__all__ = ["check_one_device", "device_of", "why_not_one_device"]


def device_of(tensors: Iterable[torch.Tensor]) -> torch.device | None:
    """The GPU of the first that lies on one. None: they are the CPU's."""
    return next((tensor.device for tensor in tensors if tensor.is_cuda), None)


def check_one_device(function: str, tensors: Iterable[torch.Tensor]) -> None:
    """Refuses lists that the core never sees as such, before anything is sent: they are copied, or several calls."""
    if why := why_not_one_device(function, tensors):
        raise InvalidArgument(why)


def why_not_one_device(function: str, tensors: Iterable[torch.Tensor]) -> str:
    """Why these cannot take part in one call, or an empty text."""
    devices = dict.fromkeys(tensor.device for tensor in tensors)
    if len(devices) < 2:
        return ""
    return f"{function}: its tensors lie on {' and '.join(map(str, devices))}: one call takes those of one device"
