"""The unfinished line at the bottom of a terminal: a progress bar that moves, or a question that waits."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from pycollective.launching.lines import visible
from pycollective.launching.screen.cells import fitted
from pycollective.launching.terminal import is_taken

INTERVAL_S = 0.1  # between two states of it
ERASE = b"\r\x1b[K"


def width(fd: int) -> int:
    try:
        return os.get_terminal_size(fd).columns or 80
    except OSError:
        return 80


@dataclass
class LiveLine:
    """Of one terminal. Of several ranks that have such a line, the first is shown, or the one that can be answered."""

    fd: int
    answered: int | None = None  # the rank that has our standard input
    open: dict[tuple[int, str], tuple[bytes, bytes]] = field(default_factory=dict)  # label and text
    drawn: bytes = b""

    def update(self, rank: int, name: str, label: bytes, line: bytes) -> None:
        self.open.pop((rank, name), None)
        if shown := visible(line):
            self.open[rank, name] = label, shown

    def around(self, lines: bytes) -> bytes:
        """The whole lines, in the place of the unfinished one, which comes below them again."""
        if self.gives_way():
            return lines
        erase = ERASE if self.drawn else b""
        self.drawn = self.line()
        return erase + lines + self.drawn

    def redrawn(self) -> bytes:
        """What brings the terminal up to date; nothing if it is."""
        return b"" if self.gives_way() or self.line() == self.drawn else self.around(b"")

    def gives_way(self) -> bool:
        """Whether the bottom of the terminal is the prompt of a rank's debugger, which has erased this line."""
        if not (self.drawn or self.open) or not is_taken(self.fd):
            return False
        self.drawn = b""
        return True

    def line(self) -> bytes:
        if not self.open:
            return b""
        rank = self.answered if self.answered in {rank for rank, _ in self.open} else min(self.open)[0]
        label, text = [each for (of, _), each in self.open.items() if of == rank][-1]
        room = width(self.fd) - 1 - (len(b"[%d] " % rank) if label else 0)
        return label + fitted(text.decode(errors="replace"), max(room, 1)).encode()
