"""torch Futures of our calls, for callers that ask for one: DDP does, once per bucket.

Of a call on a GPU one is complete as soon as streams can wait for its end: its wait() orders the current stream, its
callbacks have a stream behind the call. NCCL's calls are so from the start; for those that go through the host, and for
calls on the CPU, there is a thread.

One thread of this process completes them. It sleeps until the core rings: it drives no call, and a thread that waits
for a Work itself never meets it. Callbacks run in it, one after the other, so that the calls that they make (PowerSGD
does) come in one order on all ranks. A Future of ours that a callback waits for is completed there and then. One that
is derived from it (then(), collect_all()) needs another such thread, which there is for calls that callbacks make.
"""

from __future__ import annotations

import atexit
import copy
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import torch
from torch.futures import Future, collect_all

from pycollective._core import Work
from pycollective.torch.backend.streams import beside

__all__ = ["again", "future_of", "future_when", "settle", "settle_beside"]

STOP_S = 1.0
NO_TENSOR = type(threading.Lock())  # torch knows that these have no tensors


def again(error: Exception) -> Exception:
    """The same error to raise: it gets a traceback, whose frames keep tensors, and Futures are no garbage to Python."""
    return copy.copy(error)


class _Failure:
    """What the Future of a failed call holds: C++ that takes a tensor out of it gets the error of the call itself.

    Future.set_exception() alone would not do: it tells Python's wait() and value(), but C++ (DDP) takes the exception
    for the result, and raises a RuntimeError about its type in place of PeerFailure. An error that is raised while C++
    asks what this is, it passes on as it is.
    """

    def __init__(self, error: Exception, *, looked_into: bool) -> None:
        self._error = error
        self._looked_into = looked_into  # by its Future, for tensors on GPUs, before it takes a result
        self._first_look: object = None

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # noqa: ANN401  isinstance() asks it
        # torch looks for the tensors in a result in Python first, and words any error there as a RuntimeError.
        asking = sys._getframe(1)
        if asking.f_code.co_name != "persistent_id":
            raise again(self._error)
        look = asking.f_locals["self"]
        if not self._looked_into or self._first_look not in (None, look):
            return torch.Tensor
        self._first_look = look
        return NO_TENSOR


def settle(future: Future[Any], value: Callable[[], object], *, on_gpu: bool = False) -> None:
    """Completes it with what `value` returns or raises."""
    try:
        result = value()
    except Exception as error:
        _fail(future, error.with_traceback(None), on_gpu)
    else:
        future.set_result(result)


def settle_beside(future: Future[Any], value: Callable[[], object], device: torch.device) -> None:
    """The same of tensors on a GPU. `value` orders the current stream, and a caller that waits comes behind that."""
    with beside(device):
        settle(future, value, on_gpu=True)


def _fail(future: Future[Any], error: Exception, on_gpu: bool) -> None:
    def raise_error(_: object) -> NoReturn:
        raise again(error)

    future._set_unwrap_func(raise_error)
    future.set_result(_Failure(error, looked_into=on_gpu))


class _Future(Future[Any]):
    def wait(self) -> Any:  # noqa: ANN401  torch's
        if not self.done() and any(each.is_this_thread() for each in _completers):
            for each in _completers:
                each.settle_one(lambda pending: pending.future is self)
        return super().wait()


class _Pending(NamedTuple):
    work: Work[Any]
    value: Callable[[], object]
    future: Future[Any]
    device: torch.device | None

    def settle(self) -> None:
        if self.device is None:
            settle(self.future, self._result)
        else:
            settle_beside(self.future, self._result, self.device)

    def _result(self) -> object:
        self.work.wait()
        return self.value()


class _Completer:
    """The thread and what it watches. Thread-safety: add() from any thread."""

    def __init__(self) -> None:
        self._event_fd = os.eventfd(0, os.EFD_CLOEXEC)
        self._lock = threading.Lock()
        self._pending: list[_Pending] = []  # guarded by _lock
        self._stopping = False  # read by the thread when the bell has rung
        self._settling = False  # written by the thread alone
        self._thread = threading.Thread(target=self._run, name="pc-futures", daemon=True)
        self._thread.start()

    def add(self, pending: _Pending) -> None:
        with self._lock:
            self._pending.append(pending)
        if not pending.work._watch(self._event_fd):
            os.eventfd_write(self._event_fd, 1)

    def is_this_thread(self) -> bool:
        return self._thread.ident == threading.get_ident()

    def is_settling(self) -> bool:
        """Whether its thread may be in a callback."""
        return self._settling

    def stop(self) -> None:
        """Ends the thread, unless a callback does not come back; what is pending stays so. Nobody adds any more."""
        self._stopping = True
        os.eventfd_write(self._event_fd, 1)
        self._thread.join(STOP_S)

    def _run(self) -> None:
        os.eventfd_read(self._event_fd)
        while not self._stopping:
            self._settling = True
            while self.settle_one(lambda pending: not pending.work._watch(self._event_fd)):
                pass
            self._settling = False
            os.eventfd_read(self._event_fd)

    def settle_one(self, is_it: Callable[[_Pending], bool]) -> bool:
        """The first that is it, if there is one. The others stay for whom a callback may wait."""
        with self._lock:
            one = next(filter(is_it, self._pending), None)
            if one is None:
                return False
            self._pending.remove(one)
        one.settle()
        return True


_starting = threading.Lock()
_completers: list[_Completer] = []  # guarded by _starting


def future_of(
    work: Work[Any], value: Callable[[], object], device: torch.device | None = None
) -> Future[Any]:
    """A Future that gets `value()` when the call has ended, or its error. The value is a tensor, or a list of them.

    `device`: the GPU on which they lie.
    """
    future = _future_on(device)
    pending = _Pending(work, value, future, device)
    if work.done() or (device is not None and work._is_queued()):
        pending.settle()
    else:
        _running().add(pending)
    return future


def future_when(
    ended: Sequence[Future[Any]], value: Callable[[], object], device: torch.device
) -> Future[Any]:
    """A Future of tensors on a GPU that gets `value()`, which orders the current stream, when these have completed."""
    future = _future_on(device)

    def complete(_: object = None) -> None:
        settle_beside(future, value, device)

    if ended:
        collect_all(list(ended)).then(complete)
    else:
        complete()
    return future


def _future_on(device: torch.device | None) -> Future[Any]:
    return _Future() if device is None else _Future(devices=[device])


def _running() -> _Completer:
    """For a callback one that is in no callback, so that they never wait for each other; else the first."""
    with _starting:
        in_callback = any(each.is_this_thread() for each in _completers)
        for each in _completers:
            if not (in_callback and each.is_settling()):
                return each
        _completers.append(_Completer())
        return _completers[-1]


@atexit.register  # later than the world's, so it runs before that
def _stop() -> None:
    for each in _completers:
        each.stop()


def _in_forked_child() -> None:  # where there is no such thread
    global _starting
    _starting = threading.Lock()
    for each in _completers:
        os.close(each._event_fd)
    _completers.clear()


os.register_at_fork(after_in_child=_in_forked_child)
