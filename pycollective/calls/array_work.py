"""The Work of a call whose result is a new array, for libraries whose arrays cannot be written."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from pycollective._core import Work
    from pycollective.errors import CollectiveError

__all__ = ["ArrayWork"]

R = TypeVar("R")


class ArrayWork(Generic[R]):
    """A call on a block of memory of ours; `finish` makes the array that the call is to give, when it has ended."""

    def __init__(self, work: Work[Any], finish: Callable[[], R]) -> None:
        self._work = work
        self._finish = finish
        self._lock = threading.Lock()  # guards what follows
        self._made: list[R] = []

    def __repr__(self) -> str:
        return repr(self._work)

    def done(self) -> bool:
        """As Work.done()."""
        return self._work.done()

    def wait(self, timeout: float | None = None, *, host: bool = False) -> R:
        """The new array. The host always waits, since the array is made of what the call has written."""
        self._work.wait(timeout, host=True)
        return self._result()

    def result(self) -> R:
        """As Work.result()."""
        self._work.result()
        return self._result()

    def exception(self, timeout: float | None = None) -> CollectiveError | None:
        """As Work.exception()."""
        return self._work.exception(timeout)

    def info(self) -> dict[str, Any]:
        """As Work.info()."""
        return self._work.info()

    def __await__(self) -> Generator[Any, None, R]:
        yield from self._work.__await__()
        return self._result()

    def _result(self) -> R:
        with self._lock:
            if not self._made:
                self._made.append(self._finish())
            return self._made[0]
