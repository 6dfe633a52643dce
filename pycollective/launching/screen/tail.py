"""The last lines that a rank has written to its standard error, and how its last error began."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from pycollective.launching.failures.last_error import HEADER, is_error, is_header

TAIL_LINES = 40
TAIL_NBYTES = 1 << 18
CUT_NBYTES = 1 << 14  # what is kept of a line


@dataclass
class Tail:
    """Bounded in lines and in bytes. An error that is longer than that is known by its own line."""

    lines: deque[bytes] = field(default_factory=deque)
    nbytes: int = 0
    error: bytes | None = None  # the own line of the error that the last traceback ends with
    in_frames: bool = False  # of a traceback whose error has not come yet

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
        """What shows whose fault this rank's end was."""
        return list(self.lines) if self.error is None else [HEADER, self.error]
