"""The order of torch's streams on a GPU: what is queued behind what. The host waits for nothing here."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager

import torch

__all__ = ["Followed", "Moment", "beside"]


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


class Followed:
    """The streams of a GPU that are the current one after each other: each goes on behind the one before."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._index = torch.cuda.current_device() if device.index is None else device.index
        # The number of the stream alone, where torch tells it, costs a tenth of a Stream.
        self._number_of = getattr(torch._C, "_cuda_getCurrentRawStream", _number_of_current)
        self._number = -1
        self._last: torch.cuda.Stream | None = None

    def follow(self) -> torch.cuda.Stream | None:
        """To be called whenever something is to come behind what was queued before the last call of this.

        Returns:
            the current stream, if it is another one than then.
        """
        number = self._number_of(self._index)
        if number == self._number:
            return None
        before, now = self._last, torch.cuda.current_stream(self._device)
        self._last, self._number = now, number
        if before is None:
            return None
        now.wait_event(before.record_event())
        return now


def _number_of_current(index: int) -> int:
    number: int = torch.cuda.current_stream(index).cuda_stream
    return number


def beside(device: torch.device | None) -> AbstractContextManager[object]:
    """Another stream is the current one, so that nothing of the user's comes behind what is queued here; None: the CPU.

    Each time the next of torch's pool: one that calls of several groups shared would put them behind each other.
    Streams of the higher priority are those that programs use least.
    """
    if device is None:
        return contextlib.nullcontext()
    on: AbstractContextManager[object] = torch.cuda.stream(torch.cuda.Stream(device, priority=-1))
    return on
