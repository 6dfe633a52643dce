"""Works of GPU tensors: wait() orders the current stream after the call, as with NCCL in torch."""

# ruff: noqa: D102  methods of torch's classes, and of none that is public
from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch.futures import Future

from pycollective import _core
from pycollective.torch.backend.futures import future_of
from pycollective.torch.backend.streams import Moment
from pycollective.torch.backend.work import NO_TIMEOUT, CallWork, seconds_of

__all__ = ["GpuBarrier", "GpuWork", "work_of"]


class GpuWork(CallWork):
    """One call in the background. With a timeout, wait() blocks the host, at most that long."""

    def __init__(
        self,
        work: _core.Work[Any],
        result: Sequence[torch.Tensor],
        device: torch.device,
        after: Callable[[], None] | None = None,
        source: int = -1,
    ) -> None:
        super().__init__(work, result, after, source)
        self._device = device
        self._put_back: Moment | None = None  # guarded by _lock; set when _after has been queued

    def wait(self, timeout: timedelta = NO_TIMEOUT) -> bool:
        seconds = seconds_of(timeout)
        if seconds is not None:
            self._work.wait(seconds, host=True)
        self._work.wait()
        self._finish()
        if self._span is not None:
            self._span.end()
        return True

    def _finish(self) -> list[torch.Tensor]:
        # Copies are queued on the stream of the first caller, and a later caller may have another
        # stream.
        with self._lock:
            if self._put_in_place():
                self._put_back = Moment(self._device)
            elif self._put_back is not None:
                self._put_back.precede()
        return self._placed()

    def get_future(self) -> Future[list[torch.Tensor]]:
        if self._future is None:
            self._future = future_of(self._work, self._finish, self._device)
        return self._future

    def is_completed(self) -> bool:
        if not super().is_completed():
            return False
        put_back = self._put_back
        return put_back is None or put_back.is_reached()

    def ended(self) -> Future[Any] | None:
        return None if self._work._is_queued() else future_of(self._work, lambda: None)


class GpuBarrier(GpuWork):
    """The Work of a barrier of GPUs: the host waits, as for any barrier."""

    def wait(self, timeout: timedelta = NO_TIMEOUT) -> bool:
        self._work.wait(seconds_of(timeout), host=True)
        return True


def work_of(
    work: _core.Work[Any],
    block: object,
    result: Sequence[torch.Tensor],
    after: Callable[[], None] | None = None,
    source: int = -1,
) -> CallWork:
    """Returns the Work of a call of `block`."""
    if isinstance(block, torch.Tensor) and block.is_cuda:
        return GpuWork(work, result, block.device, after, source)
    return CallWork(work, result, after, source)
