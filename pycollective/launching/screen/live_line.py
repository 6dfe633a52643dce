"""Unfinished lines at the bottom of a terminal, such as progress bars or a prompt."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from pycollective.launching.screen.cells import fitted
from pycollective.launching.streams.lines import visible
from pycollective.launching.streams.terminal import is_taken

INTERVAL_S = 0.1  # least time between two redraws
ERASE = b"\r\x1b[K"
ERASE_ABOVE = b"\x1b[A\x1b[K"


def size(fd: int) -> tuple[int, int]:
    """Return the columns and rows of a terminal."""
    try:
        columns, rows = os.get_terminal_size(fd)
    except OSError:
        columns = rows = 0
    return columns or 80, rows or 24


@dataclass
class LiveLine:
    """The unfinished lines at the bottom of one terminal.

    If several ranks have such lines, those of the rank that gets standard input are shown, or else
    those of the lowest rank.
    """

    fd: int
    answered: int | None = None  # the rank that gets the launcher's standard input
    open: dict[tuple[int, str], tuple[bytes, list[bytes]]] = field(default_factory=dict)  # label and texts
    drawn: bytes = b""

    def update(self, rank: int, name: str, label: bytes, line: bytes) -> None:
        """Set the unfinished text. It may have several lines if the rank moves the cursor up."""
        self.open.pop((rank, name), None)
        shown = [visible(each) for each in line.split(b"\n")]
        while len(shown) > 1 and not shown[-1].strip():
            shown.pop()
        if any(shown):
            self.open[rank, name] = label, shown

    def around(self, lines: bytes) -> bytes:
        """Return the bytes that write whole lines and redraw the unfinished lines below them."""
        if self.gives_way():
            return lines
        erase = ERASE + ERASE_ABOVE * self.drawn.count(b"\n") if self.drawn else b""
        self.drawn = self.bottom()
        return erase + lines + self.drawn

    def redrawn(self) -> bytes:
        """Return the bytes that update the terminal, or none if it is current."""
        return b"" if self.gives_way() or self.bottom() == self.drawn else self.around(b"")

    def gives_way(self) -> bool:
        """Return whether a rank's debugger uses the terminal, and so has erased these lines."""
        if not (self.drawn or self.open) or not is_taken(self.fd):
            return False
        self.drawn = b""
        return True

    def bottom(self) -> bytes:
        if not self.open:
            return b""
        rank = self.answered if self.answered in {rank for rank, _ in self.open} else min(self.open)[0]
        label, texts = [each for (of, _), each in self.open.items() if of == rank][-1]
        columns, rows = size(self.fd)
        room = max(columns - 1 - (len(b"[%d] " % rank) if label else 0), 1)
        shown = (fitted(text.decode(errors="replace"), room).encode() for text in texts[-max(rows - 1, 1) :])
        return b"\n".join(label + text for text in shown)
