"""The last lines of a stream, for programs that move the cursor, e.g. nested progress bars.

A line above the cursor may still be redrawn if the program has used a carriage return in the line,
has moved the cursor back to the line, or has hidden the cursor. Such a line is kept for a short
time, because tqdm returns to it immediately. A program that has hidden the cursor, such as rich,
may return at any time: the lines that it redraws are kept until it shows the cursor again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from pycollective.launching.streams.lines import SHOWN_NBYTES, Line

HOLD_S = 0.3  # how long a drawn line is kept for the cursor to return
MOST_ROWS = 50  # most lines that are kept above the cursor, and below it


@dataclass
class Rows:
    """The kept lines of one stream. Final lines are removed at the top."""

    clock: Callable[[], float] = time.monotonic
    line: Line = field(default_factory=Line)  # the line with the cursor
    above: list[Line] = field(default_factory=list)
    below: list[Line] = field(default_factory=list)
    hidden: bool = False  # whether the program has hidden the cursor
    reach: int = 0  # how many lines the cursor last moved up

    @property
    def is_plain(self) -> bool:
        """Whether the current line is final when it ends."""
        drawn = self.line.drawn or self.line.text.endswith(b"\r")
        return not (drawn or self.above or self.below or self.hidden)

    def end_line(self) -> bytes:
        """Move the cursor to the next line. Returns the lines that are final now."""
        self._leave()
        left = self.above[-1]
        if len(left.text) > SHOWN_NBYTES or not (left.drawn or self.hidden):
            return self.take(len(self.above))
        return self.take(len(self.above) - MOST_ROWS)

    def up(self, count: int) -> None:
        if count > MOST_ROWS:  # a program that moves this far up means the top
            count = len(self.above)
        for _ in range(min(count, MOST_ROWS - len(self.below))):
            self.below.insert(0, self.line)
            self.line = self.above.pop() if self.above else Line(made=True)
            self.line.come_back()
        self.reach = len(self.below)

    def down(self, count: int) -> None:
        for _ in range(min(count, len(self.below))):
            self._leave()
            self.above[-1].drawn = True

    def show_cursor(self) -> bytes:
        """Handle the control sequence that ends drawing. Returns the lines that are final now."""
        self.hidden, self.reach = False, 0
        return self.take(len(self.above))

    def due_s(self) -> float | None:
        """Return the seconds until let_go() is needed, or None if it is not needed."""
        if not self.above or self._is_kept(0):
            return None
        return max(self.above[0].left_at + HOLD_S - self.clock(), 0.0)

    def let_go(self) -> bytes:
        """Return the lines to which the cursor has not returned within HOLD_S."""
        count = 0
        while count < len(self.above) and not self._is_kept(count):
            if self.above[count].left_at + HOLD_S > self.clock():
                break
            count += 1
        return self.take(count)

    def take(self, count: int) -> bytes:
        """Remove and return the first `count` lines above the cursor, with line ends."""
        count = max(count, 0)
        taken = b"".join(bytes(line.text) + b"\n" for line in _lines(self.above[:count]))
        del self.above[:count]
        return taken

    def __iter__(self) -> Iterator[Line]:
        """Iterate the lines from the top. Blank lines at the bottom that were drawn are omitted."""
        rows = [*self.above, self.line, *self.below]
        while rows and rows[-1].drawn and rows[-1].is_blank:
            rows.pop()
        return _lines(rows)

    def _leave(self) -> None:
        self.line.left_at = self.clock()
        self.above.append(self.line)
        self.line = Line()
        if self.below:
            self.line = self.below.pop(0)
            self.line.come_back()

    def _is_kept(self, number: int) -> bool:
        return self.hidden and self.above[number].drawn and len(self.above) - number <= self.reach


def _lines(rows: list[Line]) -> Iterator[Line]:
    return (line for line in rows if not (line.made and line.is_blank))
