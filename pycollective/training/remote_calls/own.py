"""The calls of call_async() to this process's own rank: one thread runs them in order."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable

from pycollective.base.clock import Clock
from pycollective.training.remote_calls.futures import start_thread

__all__ = ["OwnCalls"]


class OwnCalls:
    """The calls of one block to its own rank.

    Thread-safety: any thread may call any method.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()  # guards all members below
        self._thread: threading.Thread | None = None
        self._waiting: collections.deque[Callable[[], None]] = collections.deque()
        self._made = 0
        self._ended = 0
        self._is_closed = False

    def add(self, what: str, run: Callable[[], None]) -> None:
        """Queues a call. `run` must not raise. `what` describes the call in errors."""
        with self._changed:
            if self._is_closed:
                return
            if self._thread is None:
                self._thread = start_thread(what, "pc-call-here", self._run)
            self._waiting.append(run)
            self._made += 1
            self._changed.notify_all()

    def wait_for_earlier(self, clock: Clock) -> bool:
        """Waits for the calls queued so far. Returns whether they ended in time.

        Returns true after close().
        """
        with self._changed:
            made = self._made
            return self._changed.wait_for(lambda: self._is_closed or self._ended >= made, clock.left_s())

    def close(self) -> None:
        """Drops the queued calls. A call that is running continues; then the thread ends."""
        with self._changed:
            self._is_closed = True
            self._waiting.clear()
            self._changed.notify_all()

    def _run(self) -> None:
        while (run := self._next()) is not None:
            run()
            del run  # release its arguments, which may be large
            with self._changed:
                self._ended += 1
                self._changed.notify_all()

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._waiting)
            return self._waiting.popleft() if self._waiting else None
