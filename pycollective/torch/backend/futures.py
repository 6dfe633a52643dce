"""torch Futures of our calls, for callers that request one: DDP does, once per bucket.

A Future of a GPU call completes as soon as streams can wait for the end of the call: its wait()
orders the current stream, and its callbacks run on a stream that follows the call. The Future of an
NCCL call completes at once. For GPU calls that are staged through the host, and for CPU calls, a
thread completes the Future.

This is one thread of the process. It sleeps until the core signals its eventfd. It makes no
progress on calls, and never interferes with a thread that waits for a Work itself. Callbacks run in
this thread, one after the other, so that calls made in callbacks (as in PowerSGD) have the same
order on all ranks. If a callback waits for a Future of ours, that Future is completed immediately.
If a callback waits for a derived Future (then(), collect_all()), a second thread must complete the
original Futures. So the Futures of calls made in callbacks are completed by another thread.
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
NO_TENSOR = type(threading.Lock())  # torch knows that objects of this type contain no tensors


def again(error: Exception) -> Exception:
    """Returns a copy of the error to raise.

    A raised error gets a traceback, which keeps frames and their tensors alive. Python's garbage
    collection cannot free them, because it does not see Futures.
    """
    return copy.copy(error)


class _Failure:
    """The result of a failed call's Future. C++ code that reads a tensor from it gets the error.

    Future.set_exception() is not sufficient: Python's wait() and value() raise the error, but C++
    (DDP) treats the exception as the result, and raises a RuntimeError about its type instead of
    PeerFailure. An error that is raised while C++ checks the type of this object reaches the caller
    unchanged.
    """

    def __init__(self, error: Exception, *, looked_into: bool) -> None:
        self._error = error
        # whether the Future searches this object for GPU tensors before it accepts it as a result
        self._looked_into = looked_into
        self._first_look: object = None

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # noqa: ANN401  isinstance() reads it
        # Before C++ checks the type, Python code of torch searches the result for tensors, and
        # converts any error to a RuntimeError. Therefore the type checks of that search raise
        # nothing.
        asking = sys._getframe(1)
        if asking.f_code.co_name != "persistent_id":
            raise again(self._error)
        look = asking.f_locals["self"]
        if not self._looked_into or self._first_look not in (None, look):
            return torch.Tensor
        self._first_look = look
        return NO_TENSOR


def settle(future: Future[Any], value: Callable[[], object], *, on_gpu: bool = False) -> None:
    """Completes a Future with the result or the exception of `value`."""
    try:
        result = value()
    except Exception as error:
        _fail(future, error.with_traceback(None), on_gpu)
    else:
        future.set_result(result)


def settle_beside(future: Future[Any], value: Callable[[], object], device: torch.device) -> None:
    """Completes a Future of tensors on a GPU.

    `value` orders the current stream, which is a separate stream here. A caller that waits for the
    Future is ordered after that stream.
    """
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
    """The thread, and the calls for which it waits.

    Thread-safety: any thread may call add().
    """

    def __init__(self) -> None:
        self._event_fd = os.eventfd(0, os.EFD_CLOEXEC)
        self._lock = threading.Lock()
        self._pending: list[_Pending] = []  # guarded by _lock
        self._stopping = False  # read by the thread after the eventfd is signalled
        self._settling = False  # written only by the thread
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
        """Whether the thread may be inside a callback."""
        return self._settling

    def stop(self) -> None:
        """Ends the thread, unless a callback does not return. Pending Futures stay pending.

        No Future may be added after this.
        """
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
        """Completes the first pending Future that `is_it` accepts. Returns whether there was one.

        The other Futures stay pending, because a callback may wait for them.
        """
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
    """Returns a Future that gets `value()`, or the call's error, when the call has completed.

    The value is a tensor or a list of tensors; `device` is their GPU, or None.
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
    """Returns a Future of GPU tensors that gets `value()` when all of `ended` have completed.

    `value` orders the current stream.
    """
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
    """Returns a completer; inside a callback, one that is running no callback.

    So callbacks never wait for each other.
    """
    with _starting:
        in_callback = any(each.is_this_thread() for each in _completers)
        for each in _completers:
            if not (in_callback and each.is_settling()):
                return each
        _completers.append(_Completer())
        return _completers[-1]


@atexit.register  # registered after the handler that ends the world, so it runs before that handler
def _stop() -> None:
    for each in _completers:
        each.stop()


def _in_forked_child() -> None:  # the child does not have the threads
    global _starting
    _starting = threading.Lock()
    for each in _completers:
        os.close(each._event_fd)
    _completers.clear()


os.register_at_fork(after_in_child=_in_forked_child)
