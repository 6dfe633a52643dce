"""Receives from any source, which the core offers only as blocking calls.

The receives of one tag are executed in the order in which they were posted, either by a thread that
waits for one of them, or by a thread of the tag, which exists from the first receive on. So all
tags make progress at the same time, and `dist.recv(x)` still receives in its caller's thread. The
end of the world ends these receives, as it ends any call.
"""

# ruff: noqa: D102  methods of torch's classes, and of none that is public
from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from datetime import timedelta
from typing import Any

import torch
from torch.futures import Future

from pycollective import _core
from pycollective.base.clock import Clock
from pycollective.calls.messages import Incoming
from pycollective.errors import CollectiveTimeout
from pycollective.torch.backend.devices import device_of
from pycollective.torch.backend.futures import again, settle, settle_beside
from pycollective.torch.backend.pieces import to_write
from pycollective.torch.backend.streams import Moment, beside
from pycollective.torch.backend.work import NO_TIMEOUT, DoneWork, seconds_of

__all__ = ["AnySourceWork", "Inbox"]


class Inbox:
    """The receives from any source of one group with one tag.

    Thread-safety: any thread may call any method.
    """

    def __init__(self) -> None:
        self._works: deque[AnySourceWork] = deque()
        self._begin()
        _inboxes.add(self)

    def _begin(self) -> None:
        self._receive_lock = threading.Lock()  # held while the first receive is executed
        self._posted = threading.Semaphore(0)
        self._thread: threading.Thread | None = None
        self._stopping = False  # whether the thread ends after the last posted receive

    def post(self, work: AnySourceWork) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="pc-any-source", daemon=True)
            self._thread.start()
        self._works.append(work)
        self._posted.release()

    def receive_until(self, work: AnySourceWork) -> None:
        """Returns when `work` has ended.

        This thread executes the receives up to `work`, unless another thread is doing that.
        """
        if self._receive_lock.acquire(blocking=False):
            ended: list[AnySourceWork] = []
            try:
                while not work.has_ended():
                    ended.append(self._receive_first())
            finally:
                self._receive_lock.release()
                for each in ended:
                    each.settle_future()  # runs callbacks, so the lock must not be held
        work.wait_until_ended(None)

    def _receive_first(self) -> AnySourceWork:
        work = self._works[0]
        work.receive()
        return self._works.popleft()

    def _run(self) -> None:
        while not (self._stopping and not self._works):
            self._posted.acquire()
            self._receive_next()

    # A separate function, so that no local variable keeps tensors alive until the next receive.
    def _receive_next(self) -> None:
        with self._receive_lock:
            work = self._receive_first() if self._works else None
        if work is not None:
            work.settle_future()

    def stop(self) -> None:
        """Ends the thread when all posted receives have ended. No receive may follow."""
        self._stopping = True
        self._posted.release()

    def in_forked_child(self) -> None:
        self._begin()


class AnySourceWork(DoneWork):
    """A receive from the first rank that sends."""

    def __init__(
        self, inbox: Inbox, group: _core.Group, tensor: torch.Tensor, tag: int, timeout_s: float
    ) -> None:
        super().__init__([tensor])
        self._inbox, self._group, self._tag = inbox, group, tag
        self._clock = Clock(timeout_s)
        self._device = device_of(self._result)
        self._posted = self._moment()  # for a GPU tensor: the message is written after the work queued so far
        self._arrived: Moment | None = None  # for a GPU tensor: later uses are ordered after this moment
        self._error: Exception | None = None
        self._ended = threading.Event()
        self._lock = threading.Lock()  # guards _future and its is_settled
        self._future: _AnySourceFuture | None = None
        inbox.post(self)

    def _moment(self) -> Moment | None:
        return None if self._device is None else Moment(self._device)

    def receive(self) -> None:
        try:
            incoming = Incoming(self._group, _core.ANY_SOURCE, self._tag, self._clock.left_s())
            with beside(self._device):
                if self._posted is not None:
                    self._posted.precede()
                block, after = to_write(self._result[0])
                incoming.into(block)
                if after is not None:
                    after()
                self._arrived = self._moment()
            self._source = incoming.source
        except Exception as error:
            self._error = error.with_traceback(None)  # the traceback would keep this Work alive
        if self._span is not None:
            self._span.end()
        self._ended.set()

    def wait_until_ended(self, timeout_s: float | None) -> bool:
        return self._ended.wait(timeout_s)

    def wait(self, timeout: timedelta = NO_TIMEOUT) -> bool:
        seconds = seconds_of(timeout)
        if seconds is None:
            self._inbox.receive_until(self)
        elif not self.wait_until_ended(seconds):
            raise CollectiveTimeout(
                f"Work.wait() gave up after {seconds} s. The receive goes on, and can be waited for again",
                rank=self._group.rank,
                elapsed_s=self._clock.elapsed_s(),
            )
        self._value()
        return True

    def _value(self) -> list[torch.Tensor]:
        if self._error is not None:
            raise again(self._error)
        if self._arrived is not None:
            self._arrived.precede()
        return self._result

    def get_future(self) -> Future[list[torch.Tensor]]:
        with self._lock:
            if self._future is None:
                self._future = _AnySourceFuture(self)
        if self.has_ended():
            self.settle_future()
        return self._future

    def ended(self) -> Future[Any] | None:
        if self._device is not None:
            # receive here, because torch cannot combine Futures of a GPU with Futures of the CPU
            self._inbox.receive_until(self)
        return None if self.has_ended() else self.get_future()

    def settle_future(self) -> None:
        with self._lock:
            future = self._future
            if future is None or future.is_settled:
                return
            future.is_settled = True
        if self._device is None:
            settle(future, self._value)
        else:
            settle_beside(future, self._value, self._device)

    def has_ended(self) -> bool:
        return self._ended.is_set()

    def is_completed(self) -> bool:
        return self.has_ended() and (self._arrived is None or self._arrived.is_reached())

    def exception(self) -> BaseException | None:
        return self._error


class _AnySourceFuture(Future[Any]):
    """A Future with a wait() that receives in the calling thread, as wait() of its Work does.

    Otherwise a callback that waits in the inbox's own thread would wait forever.
    """

    def __init__(self, work: AnySourceWork) -> None:
        super().__init__(devices=[] if work._device is None else [work._device])
        self._work = work
        self.is_settled = False

    def wait(self) -> Any:  # noqa: ANN401  torch's
        self._work._inbox.receive_until(self._work)
        return super().wait()


_inboxes: weakref.WeakSet[Inbox] = weakref.WeakSet()


def _in_forked_child() -> None:  # the child has no such thread, and its receives raise ForkedProcess
    for each in _inboxes:
        each.in_forked_child()


os.register_at_fork(after_in_child=_in_forked_child)
