"""Works of GPU tensors: wait() orders the current stream after the call, as torch's NCCL does."""

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
    """One call on GPU tensors. A wait() with a timeout blocks the host, at most for that time."""

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
        # guarded by _lock; set when the copies of _after have been queued
        self._put_back: Moment | None = None

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
        # The copies are queued on the stream of the first caller. A later caller's stream must wait
        # for them.
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
    """The Work of a barrier of GPUs. Its wait() blocks the host, as that of any barrier."""

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
    """Returns the Work of a call on `block`."""
    if isinstance(block, torch.Tensor) and block.is_cuda:
        return GpuWork(work, result, block.device, after, source)
    return CallWork(work, result, after, source)
