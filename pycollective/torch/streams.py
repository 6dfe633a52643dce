"""The order of torch's streams on a GPU: what is queued behind what. The host waits for nothing here."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager

import torch

__all__ = ["Moment", "beside"]


class Moment:
    """What is queued on the current stream of a GPU by now."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._event = torch.cuda.current_stream(device).record_event()

    def precede(self) -> None:
        """Whatever is queued from now on, on the stream that is the current one by then, comes behind it."""
        torch.cuda.current_stream(self._device).wait_event(self._event)

    def is_reached(self) -> bool:
        """Whether the GPU has done all of it."""
        return bool(self._event.query())


def beside(device: torch.device | None) -> AbstractContextManager[object]:
    """Another stream is the current one, so that nothing of the user's comes behind what is queued here; None: the CPU.

    Each time the next of torch's pool: one that calls of several groups shared would put them behind each other.
    Streams of the higher priority are those that programs use least.
    """
    if device is None:
        return contextlib.nullcontext()
    on: AbstractContextManager[object] = torch.cuda.stream(torch.cuda.Stream(device, priority=-1))
    return on
