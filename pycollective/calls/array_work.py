"""The Work of a call with a new array as its result, for libraries with immutable arrays."""

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
    """A call on an internal block. `finish` makes the result array after the call has completed."""

    def __init__(self, work: Work[Any], finish: Callable[[], R]) -> None:
        self._work = work
        self._finish = finish
        self._lock = threading.Lock()  # guards _made
        self._made: list[R] = []

    def __repr__(self) -> str:
        return repr(self._work)

    def done(self) -> bool:
        """See Work.done()."""
        return self._work.done()

    def wait(self, timeout: float | None = None, *, host: bool = False) -> R:
        """Return the new array.

        This always blocks the host, because the array is made of the call's output.
        """
        self._work.wait(timeout, host=True)
        return self._result()

    def result(self) -> R:
        """Return the new array, or raise as Work.result() does."""
        self._work.result()
        return self._result()

    def exception(self, timeout: float | None = None) -> CollectiveError | None:
        """See Work.exception()."""
        return self._work.exception(timeout)

    def info(self) -> dict[str, Any]:
        """See Work.info()."""
        return self._work.info()

    def __await__(self) -> Generator[Any, None, R]:
        yield from self._work.__await__()
        return self._result()

    def _result(self) -> R:
        with self._lock:
            if not self._made:
                self._made.append(self._finish())
            return self._made[0]
