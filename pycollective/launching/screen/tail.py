"""The last lines of a rank's standard error, and the line of its last error."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from pycollective.launching.failures.last_error import HEADER, is_error, is_header

TAIL_LINES = 40
TAIL_NBYTES = 1 << 18
CUT_NBYTES = 1 << 14  # at most this much of a line is kept


@dataclass
class Tail:
    """The last lines, limited in number and bytes, and the error line even if it precedes them."""

    lines: deque[bytes] = field(default_factory=deque)
    nbytes: int = 0
    error: bytes | None = None  # the error line of the last traceback
    in_frames: bool = False  # whether the last line is inside a traceback, before its error line

    def add(self, lines: Sequence[bytes]) -> None:
        for line in lines:
            self.add_line(line[:CUT_NBYTES])

    def add_line(self, line: bytes) -> None:
        self.lines.append(line)
        self.nbytes += len(line)
        while len(self.lines) > TAIL_LINES or self.nbytes > TAIL_NBYTES:
            self.nbytes -= len(self.lines.popleft())
        if is_header(line):
            self.in_frames, self.error = True, None
        elif self.in_frames and is_error(line):
            self.in_frames, self.error = False, line

    @property
    def judged(self) -> Sequence[bytes]:
        """The lines that show whether this rank's failure is the root cause."""
        return list(self.lines) if self.error is None else [HEADER, self.error]
