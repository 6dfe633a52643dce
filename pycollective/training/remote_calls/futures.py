"""The Futures of call_async(): one thread completes them with their results, or with a timeout.

The thread that receives a result only queues it, because the callbacks of a Future may take long.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NoReturn, TypeAlias

from pycollective.base.clock import Clock
from pycollective.errors import CollectiveError

__all__ = ["Futures", "Outcome", "Pending", "outcome_of", "start_thread"]

Outcome: TypeAlias = Callable[[], Any]  # returns the call's result, or raises its exception


class Pending:
    """A call without a result. Only the thread that has claimed it may provide the result."""

    def __init__(self, clock: Clock, late: Callable[[], Exception]) -> None:
        self.future: Future[Any] = Future()
        self.future.set_running_or_notify_cancel()
        self.clock = clock
        self.late = late
        self.is_claimed = False
        self.outcome: Outcome | None = None
        # registers the call; None until the call is sent
        self.under_way: contextlib.AbstractContextManager[Any] | None = None


class Futures:
    """The Futures of one block.

    Thread-safety: any thread may call any method.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()  # guards all members below
        self._thread: threading.Thread | None = None
        self._open = 0  # number of calls that have begun and not ended
        self._unclaimed: set[Pending] = set()
        self._ready: collections.deque[Pending] = collections.deque()
        self._look_at_s = math.inf  # no call times out before this time
        self._is_closed = False

    def begin(self, what: str, clock: Clock, late: Callable[[], Exception]) -> Pending:
        """Begins a call, which the caller then sends. `late` makes the error of a timeout."""
        with self._changed:
            if self._thread is None:
                self._thread = start_thread(what, "pc-call-results", self._run)
            self._open += 1
        return Pending(clock, late)

    def await_outcome(self, pending: Pending, under_way: contextlib.AbstractContextManager[Any]) -> None:
        """Starts the timeout of a call that has been sent. Closes `under_way` when it ends."""
        with self._changed:
            pending.under_way = under_way
            if pending.outcome is not None:
                self._ready.append(pending)
                self._changed.notify()
            elif not pending.is_claimed:
                self._unclaimed.add(pending)
                self._look_in(pending.clock)

    def claim(self, pending: Pending) -> bool:
        """Claims a call, so that it cannot time out. Returns whether this is the first claim."""
        with self._changed:
            return self._claim(pending)

    def give(self, pending: Pending, outcome: Outcome) -> None:
        """Provides the outcome of a claimed call."""
        with self._changed:
            pending.outcome = outcome
            if pending.under_way is not None:
                self._ready.append(pending)
                self._changed.notify()

    def end(self) -> None:
        """Ends a call: its Future has been completed, or it could not be sent."""
        with self._changed:
            self._open -= 1
            self._changed.notify()

    def close(self) -> None:
        """Refuses further calls. The thread ends after the last call."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def _claim(self, pending: Pending) -> bool:
        self._unclaimed.discard(pending)
        before, pending.is_claimed = pending.is_claimed, True
        return not before

    def _look_in(self, clock: Clock) -> None:
        left_s = clock.left_s()
        look_at_s = math.inf if left_s is None else time.monotonic() + left_s
        if look_at_s < self._look_at_s:
            self._look_at_s = look_at_s
            self._changed.notify()

    def _claim_late(self) -> None:
        self._look_at_s = math.inf
        for pending in list(self._unclaimed):
            if pending.clock.left_s() == 0:
                self._claim(pending)
                pending.outcome = functools.partial(_raise, pending.late())
                self._ready.append(pending)
            else:
                self._look_in(pending.clock)

    def _run(self) -> None:
        while (pending := self._next()) is not None:
            _complete(pending)
            del pending  # release the result, which may be large

    def _next(self) -> Pending | None:
        """Waits for a call that has an outcome. Returns None after close() and the last call."""
        with self._changed:
            while not self._ready:
                if self._is_closed and not self._open:
                    return None
                if (left_s := self._look_at_s - time.monotonic()) <= 0:
                    self._claim_late()
                else:
                    self._changed.wait(None if left_s == math.inf else left_s)
            return self._ready.popleft()


def outcome_of(run: Callable[[], Any]) -> Outcome:
    """Calls `run`, and returns what it has returned or raised as an Outcome."""
    try:
        result = run()
    except BaseException as error:
        return functools.partial(_raise, error)
    return lambda: result


def start_thread(what: str, name: str, run: Callable[[], None]) -> threading.Thread:
    """Starts a thread. `what` describes the call that needs it, which has not been sent.

    Raises CollectiveError if no thread can be started.
    """
    thread = threading.Thread(target=run, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise CollectiveError(
            f"{what} needs a thread, and the system starts none ({error}). Nothing has been sent or run. End threads "
            "of this process, allow it more (ulimit -u, or pids.max of its cgroup), or use call(), which needs none",
            operation=what,
        ) from error
    return thread


def _raise(error: BaseException) -> NoReturn:
    raise error


def _complete(pending: Pending) -> None:
    assert pending.outcome is not None
    assert pending.under_way is not None
    with pending.under_way:
        try:
            result = pending.outcome()
        except BaseException as error:
            pending.future.set_exception(error)
        else:
            pending.future.set_result(result)
