"""Output of one rank for all ranks: lines, and the progress of a loop."""

from __future__ import annotations

import builtins
import io
import os
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TextIO, TypeVar

from pycollective.base.advice import advised
from pycollective.errors import InvalidArgument
from pycollective.runtime import lifetime

__all__ = ["print", "progress"]

T = TypeVar("T")
REDRAW_S = 0.1  # least seconds between two updates on a terminal
LINE_S = 10.0  # seconds between two lines elsewhere, so that a log stays short


def print(
    *values: object,
    sep: str = " ",
    end: str = "\n",
    file: TextIO | None = None,
    flush: bool = True,
    rank: int = 0,
) -> None:
    """Prints on one rank of the world, immediately; the other ranks continue.

    No rank waits. Without a world it is the built-in print.

    Parameters:
        values: as for the built-in print, like sep, end, file and flush.
        rank: the rank that prints.

    Raises:
        InvalidArgument: on every rank, if there is no such rank.

    Example:
        >>> import pycollective as pc
        >>> _ = pc.init()
        >>> pc.print("epoch", 3)
        epoch 3
        >>> pc.shutdown()
    """
    if lifetime.is_initialized():
        if not 0 <= rank < lifetime.size():
            raise InvalidArgument(f"print(rank={rank}): the world has {lifetime.size()} ranks")
        if rank != lifetime.rank():
            return
    builtins.print(*values, sep=sep, end=end, file=file, flush=flush)


@advised
def progress(iterable: Iterable[T], *, total: int | None = None, description: str = "") -> Iterator[T]:
    """Iterates, and shows the progress on rank 0's standard error: count, rate, time left.

    Other ranks just iterate. On a terminal, also under `pycollective run` and pc.run, one line is
    rewritten. Elsewhere a line is printed every 10 seconds, and one at the end.

    Parameters:
        iterable: any iterable.
        total: the number of items; default the length of the iterable, if it has one.
        description: printed before the count.

    Example:
        >>> import pycollective as pc
        >>> for batch in pc.progress([1, 2, 3], description="epoch 3"):
        ...     pass
    """
    items = iter(iterable)  # raises here, and not in the loop, if the argument is not iterable
    if lifetime.is_initialized() and lifetime.rank() != 0:
        return items
    if total is None:
        try:
            total = len(iterable)  # type: ignore[arg-type]
        except TypeError:  # the iterable has no length
            pass
    return _shown(items, total, description)


def _shown(items: Iterator[T], total: int | None, description: str) -> Iterator[T]:
    line = ProgressLine(total, description)
    try:
        for item in items:
            yield item
            line.count()
    finally:  # also if the program leaves the loop early
        line.end()


class ProgressLine:
    """A line on standard error, rewritten on a terminal and repeated at intervals elsewhere."""

    def __init__(self, total: int | None, description: str) -> None:
        self._total = total
        self._front = f"{description} " if description else ""
        self._out = sys.stderr or io.StringIO()  # sys.stderr is None in a program without a console
        self._is_terminal = self._out.isatty() or _leads_to_a_terminal(self._out)
        self._began = self._shown_at = time.monotonic()
        self._done = self._length = 0

    def count(self) -> None:
        """Counts one more item."""
        self._done += 1
        now = time.monotonic()
        if now - self._shown_at >= (REDRAW_S if self._is_terminal else LINE_S):
            self._show(now)

    def end(self) -> None:
        """Shows the final state."""
        self._show(time.monotonic())
        if self._is_terminal:
            builtins.print(file=self._out, flush=True)

    def _show(self, now: float) -> None:
        text, self._shown_at = self._text(now - self._began), now
        if self._is_terminal:  # padded, because the previous text may be longer
            builtins.print(f"\r{text:{self._length}}", end="", file=self._out, flush=True)
            self._length = len(text)
        else:
            builtins.print(text, file=self._out, flush=True)

    def _text(self, elapsed_s: float) -> str:
        share = f"/{self._total} {100 * self._done // self._total}%" if self._total else ""
        rate = self._done / elapsed_s if elapsed_s else 0.0
        left = max(0, self._total - self._done) if self._total and rate else 0
        clock = f"{_clock(left / rate)} left" if left else f"{_clock(elapsed_s)} in all"
        return f"{self._front}{self._done}{share}, {rate:.3g}/s, {clock}"


def _leads_to_a_terminal(file: TextIO) -> bool:
    """Returns whether `file` is a pipe to our launcher, which shows unfinished lines."""
    if not os.environ.get("PYCOLLECTIVE_TERMINAL"):
        return False
    try:
        return stat.S_ISFIFO(os.fstat(file.fileno()).st_mode)
    except (OSError, ValueError):  # `file` has no descriptor or is closed
        return False


def _clock(seconds: float) -> str:
    minutes, second = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{second:02}"
