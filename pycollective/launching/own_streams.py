"""What the ranks of pc.run print, in sys.stdout and sys.stderr of this process; on a terminal unfinished lines, too."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TextIO

from pycollective.launching.screen.live_line import INTERVAL_S, LiveLine

__all__ = ["OwnStreams"]


class OwnStreams:
    """A notebook, or a test, may have put other streams there: they are looked up at each line."""

    def __init__(self) -> None:
        self.live: dict[int, LiveLine] = {}  # by descriptor of the terminal
        self.changed = False
        self.drawn_at = 0.0

    def show(self, rank: int, name: str, lines: list[str]) -> None:
        """Whole lines, with the rank in front."""
        file = stream(name)
        if file is None:  # a program without a console, or with `>&-`
            return
        text = "".join(f"[{rank}] {line}\n" for line in lines)
        live = self.terminal(file)
        file.write(
            text if live is None else live.around(text.encode(errors="replace")).decode(errors="replace")
        )
        file.flush()

    def unfinished(self, rank: int, name: str, line: bytes) -> None:
        """What there is of the rank's next line."""
        file = stream(name)
        if file is not None and (live := self.terminal(file)) is not None:
            live.update(rank, name, b"[%d] " % rank, line)
            self.changed = True

    def due_s(self) -> float | None:
        """Seconds until redraw() is wanted; None: nothing has changed."""
        return max(self.drawn_at + INTERVAL_S - time.monotonic(), 0.0) if self.changed else None

    def redraw(self) -> None:
        """Brings the terminal up to date."""
        self.changed, self.drawn_at = False, time.monotonic()
        for file in (sys.stdout, sys.stderr):
            live = None if file is None else self.terminal(file)
            if live is not None and (text := live.redrawn()):
                file.write(text.decode(errors="replace"))
                file.flush()

    def terminal(self, file: TextIO) -> LiveLine | None:
        with contextlib.suppress(OSError, ValueError):  # no descriptor, or closed
            if file.isatty():
                return self.live.setdefault(0, LiveLine(file.fileno()))
        return None


def stream(name: str) -> TextIO | None:
    return sys.stdout if name == "out" else sys.stderr
