"""Orders torch's streams on a GPU. The host never waits here."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager

import torch

__all__ = ["Followed", "Moment", "beside"]


class Moment:
    """A position in the order of GPU work: after the work queued on the current stream so far."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._event = torch.cuda.current_stream(device).record_event()

    def precede(self) -> None:
        """Orders later work on the stream that is current now after this moment."""
        torch.cuda.current_stream(self._device).wait_event(self._event)

    def is_reached(self) -> bool:
        """Returns whether the GPU has completed all work before this moment."""
        return bool(self._event.query())


class Followed:
    """Orders GPU work when the current stream changes: each stream follows the previous one."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._index = torch.cuda.current_device() if device.index is None else device.index
        # torch may provide the number of the stream alone, which costs a tenth of making a Stream.
        self._number_of = getattr(torch._C, "_cuda_getCurrentRawStream", _number_of_current)
        self._number = -1
        self._last: torch.cuda.Stream | None = None

    def follow(self) -> torch.cuda.Stream | None:
        """Orders the current stream after the stream of the previous call of this method.

        Call it before queueing work that must follow the earlier work.

        Returns:
            The current stream, if it has changed since the previous call, else None.
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
    """Returns a context with another current stream, so that the user's work is not delayed.

    If `device` is None, which means the CPU, the context does nothing. Each context takes the next
    stream of torch's pool, because a shared stream would serialize the calls of several groups. The
    stream has a higher priority, because programs use such streams least.
    """
    if device is None:
        return contextlib.nullcontext()
    on: AbstractContextManager[object] = torch.cuda.stream(torch.cuda.Stream(device, priority=-1))
    return on
