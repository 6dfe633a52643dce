"""Writes the output of pc.run's ranks to sys.stdout and sys.stderr of this process.

On a terminal, unfinished lines are shown too.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import sys
import time
from typing import TextIO

from pycollective.launching.screen.live_line import INTERVAL_S, LiveLine

__all__ = ["OwnStreams"]

PATIENCE_S = 1.0  # how long to wait for a slow reader of the output after the deadline
PIECE = select.PIPE_BUF // 4  # characters per write; each has at most four bytes


class OwnStreams:
    """Writes to sys.stdout and sys.stderr.

    They are looked up for each line, because a notebook or a test may have replaced them.
    """

    def __init__(self, deadline: float = math.inf) -> None:
        self.deadline = deadline  # after this time, output that is not read is dropped
        self.pauses = False  # whether output was dropped because it was not read by the deadline
        self.live: dict[int, LiveLine] = {}  # by terminal
        self.changed = False
        self.drawn_at = 0.0

    def show(self, rank: int, name: str, lines: list[str]) -> None:
        """Show whole lines, prefixed with the rank."""
        file = stream(name)
        if file is None:  # the program has no console, or was started with `>&-`
            return
        text = "".join(f"[{rank}] {line}\n" for line in lines)
        live = self.terminal(file)
        if live is not None:
            text = live.around(text.encode(errors="replace")).decode(errors="replace")
        self.write(file, text)

    def unfinished(self, rank: int, name: str, line: bytes) -> None:
        """Set the rank's unfinished line."""
        file = stream(name)
        if file is not None and (live := self.terminal(file)) is not None:
            live.update(rank, name, b"[%d] " % rank, line)
            self.changed = True

    def due_s(self) -> float | None:
        """Return the seconds until redraw() is needed, or None if nothing has changed."""
        return max(self.drawn_at + INTERVAL_S - time.monotonic(), 0.0) if self.changed else None

    def redraw(self) -> None:
        """Redraw the terminals."""
        self.changed, self.drawn_at = False, time.monotonic()
        for file in (sys.stdout, sys.stderr):
            live = None if file is None else self.terminal(file)
            if live is not None and (text := live.redrawn()):
                self.write(file, text.decode(errors="replace"))

    def terminal(self, file: TextIO) -> LiveLine | None:
        with contextlib.suppress(OSError, ValueError):  # the stream has no descriptor or is closed
            if file.isatty():
                fd = file.fileno()
                return self.live.setdefault(os.fstat(fd).st_rdev, LiveLine(fd))
        return None

    def write(self, file: TextIO, text: str) -> None:
        """Write in pieces that fit into a writable pipe, so that no write outlasts the deadline."""
        encoding = getattr(file, "encoding", None)
        if encoding is not None:  # escape characters that the encoding lacks, as Python does
            text = text.encode(encoding, errors="backslashreplace").decode(encoding)
        for begin in range(0, len(text), PIECE):
            left_s = max(self.deadline - time.monotonic(), 0.0 if self.pauses else PATIENCE_S)
            self.pauses = not writable(file, left_s)
            if self.pauses:
                return
            file.write(text[begin : begin + PIECE])
            file.flush()


def writable(file: TextIO, left_s: float) -> bool:
    """Wait until the file is writable, at most `left_s` seconds. Returns whether it is."""
    try:
        fd = file.fileno()
    except (OSError, ValueError, AttributeError):  # a stream without a descriptor can always be written
        return True
    waiting = select.poll()
    waiting.register(fd, select.POLLOUT)
    return bool(waiting.poll(None if left_s == math.inf else left_s * 1e3))


def stream(name: str) -> TextIO | None:
    return sys.stdout if name == "out" else sys.stderr
