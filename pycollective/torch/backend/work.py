"""torch's Work over a Work of ours. C++ calls only its wait() and get_future()."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Protocol

import torch
from torch.distributed import Work as TorchWork
from torch.futures import Future, collect_all

from pycollective import _core
from pycollective.errors import InvalidArgument
from pycollective.torch.backend.devices import device_of
from pycollective.torch.backend.futures import again, future_of, future_when

__all__ = ["NO_TIMEOUT", "CallWork", "DoneWork", "ManyWork", "seconds_of"]

NO_TIMEOUT = timedelta(0)


def seconds_of(timeout: timedelta | None) -> float | None:
    """Returns the timeout that was passed to wait(). None means the call's own timeout."""
    return None if timeout is None or timeout <= NO_TIMEOUT else timeout.total_seconds()


class TraceSpan(Protocol):
    """A call in a profiler's trace, as made by profiling.Span."""

    def end(self) -> None:
        """Ends the span; a repeated call does nothing."""


class DoneWork(TorchWork):
    """The Work of an operation that has completed; base class of the other Works."""

    _span: TraceSpan | None = None  # span in a profiler's trace that ends when this Work completes

    def __init__(self, result: Sequence[torch.Tensor] = (), source: int = -1) -> None:
        super().__init__()
        self._result = list(result)
        self._source = source

    def wait(self, timeout: timedelta = NO_TIMEOUT) -> bool:
        return True

    def get_future(self) -> Future[list[torch.Tensor]]:
        self.wait()
        device = device_of(self._result)
        future: Future[list[torch.Tensor]] = Future() if device is None else Future(devices=[device])
        future.set_result(self._result)
        return future

    def ended(self) -> Future[Any] | None:
        """Returns a Future that completes when wait() would return at once.

        Returns None if wait() would already do so. The value of the Future has no meaning. ManyWork
        uses this.
        """
        return None

    def is_completed(self) -> bool:
        return True

    def exception(self) -> BaseException | None:
        return None

    def is_success(self) -> bool:
        return self.is_completed() and self.exception() is None

    def result(self) -> list[torch.Tensor]:
        self.wait()
        return self._result

    def synchronize(self) -> None:
        self.wait()

    def source_rank(self) -> int:
        self.wait()
        return self._source

    _source_rank = source_rank


class CallWork(DoneWork):
    """One call in the background. wait() makes progress in the caller's thread, without the GIL."""

    def __init__(
        self,
        work: _core.Work[Any],
        result: Sequence[torch.Tensor],
        after: Callable[[], None] | None = None,
        source: int = -1,
    ) -> None:
        super().__init__(result, source)
        self._work = work
        self._after = after  # copies the result to its destination; None after that
        self._lost: Exception | None = None  # the error if the destination cannot hold the result
        self._lock = threading.Lock()  # guards _after and _lost
        self._future: Future[list[torch.Tensor]] | None = None

    def wait(self, timeout: timedelta = NO_TIMEOUT) -> bool:
        self._work.wait(seconds_of(timeout))
        self._finish()
        if self._span is not None:
            self._span.end()
        return True

    def _finish(self) -> list[torch.Tensor]:
        with self._lock:  # a second caller waits until the first one has copied
            self._put_in_place()
        return self._placed()

    def _put_in_place(self) -> bool:
        """Copies the result to its destination. Returns whether this call did it."""
        if self._after is None:
            return False
        try:
            self._after()
        except InvalidArgument as error:
            self._lost = again(error)
        self._after = None
        return True

    def _placed(self) -> list[torch.Tensor]:
        if self._lost is not None:
            raise again(self._lost)
        return self._result

    def get_future(self) -> Future[list[torch.Tensor]]:
        if self._future is None:
            self._future = future_of(self._work, self._finish)
        return self._future

    def is_completed(self) -> bool:
        if not self._work.done():
            return False
        if self._after is not None and self._work.exception() is None:
            with contextlib.suppress(InvalidArgument):
                self._finish()
        return True

    def exception(self) -> BaseException | None:
        if not self._work.done():
            return None
        return self._work.exception() or (self._lost if self.is_completed() else None)

    def ended(self) -> Future[Any] | None:
        return self.get_future()


class ManyWork(DoneWork):
    """Several operations with one Work."""

    def __init__(self, works: Sequence[TorchWork]) -> None:
        super().__init__([tensor for work in works if isinstance(work, DoneWork) for tensor in work._result])
        self._works = list(works)

    def wait(self, timeout: timedelta = NO_TIMEOUT) -> bool:
        for work in self._works:
            work.wait(timeout)
        return True

    def get_future(self) -> Future[list[torch.Tensor]]:
        device = device_of(self._result)
        if device is not None:
            return future_when(self._ends(), self.result, device)

        def all_done(futures: Future[list[Future[list[torch.Tensor]]]]) -> list[torch.Tensor]:
            return [tensor for each in futures.value() for tensor in each.value()]

        return collect_all([work.get_future() for work in self._works]).then(all_done)

    def _ends(self) -> list[Future[Any]]:
        ends = (work.ended() for work in self._works if isinstance(work, DoneWork))
        return [end for end in ends if end is not None]

    def ended(self) -> Future[Any] | None:
        ends = self._ends()
        return collect_all(ends) if ends else None

    def is_completed(self) -> bool:
        return all(work.is_completed() for work in self._works)

    def exception(self) -> BaseException | None:
        return next((error for work in self._works if (error := work.exception()) is not None), None)
