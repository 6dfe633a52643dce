"""The Work of a call whose result is a new array, for libraries whose arrays cannot be written."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pycollective._core import CollectiveError, Work

__all__ = ["ArrayWork"]


class ArrayWork:
    """A call on a block that is the library's to write, and what makes the result of that block when it has ended."""

    def __init__(self, work: Work[Any], finish: Callable[[], Any]) -> None:
        self._work = work
        self._lock = threading.Lock()  # guards what follows
        self._finish: Callable[[], Any] | None = finish
        self._made: Any = None

    def __repr__(self) -> str:
        return repr(self._work)

    def done(self) -> bool:
        return self._work.done()

    def wait(self, timeout: float | None = None, *, host: bool = False) -> Any:
        """The new array. The host always waits, since the array is made of what the call has written."""
        self._work.wait(timeout, host=True)
        return self._result()

    def result(self) -> Any:
        self._work.result()
        return self._result()

    def exception(self, timeout: float | None = None) -> CollectiveError | None:
        return self._work.exception(timeout)

    def info(self) -> dict[str, Any]:
        return self._work.info()

    def __await__(self) -> Generator[Any, None, Any]:
        yield from self._work.__await__()
        return self._result()

    def _result(self) -> Any:
        with self._lock:
            if self._finish is not None:
                self._made, self._finish = self._finish(), None
            return self._made
