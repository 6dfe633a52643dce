"""Lines as a terminal shows them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

CARRIAGE_RETURN = ord("\r")
SHOWN_NBYTES = 1 << 13  # of an unfinished line
# Moves of the cursor and titles of windows, which would lead into the lines of other ranks. Colours stay.
_MOVES = re.compile(rb"\x1b(\[\??[\d;]*[A-HJKSTdfhlnrsu]|[78DEM]|\][^\x07\x1b\n]{0,1000}(\x07|\x1b\\))")


def visible(line: bytes) -> bytes:
    """What a terminal would show of a line that is drawn anew by carriage returns."""
    return _MOVES.sub(b"", line).rstrip(b"\r").rpartition(b"\r")[2]


@dataclass
class Line:
    """A line that grows, or is drawn anew. What that costs does not depend on how much of it has come."""

    text: bytearray = field(default_factory=bytearray)
    drawn: bool = False  # whether something has been drawn over, or the cursor has come back
    made: bool = False  # by a move above all that is kept: it is no line until something stands in it
    left_at: float = 0.0  # when the cursor went on to the line below

    def draw(self, text: bytes) -> None:
        """Of a progress bar only its last state stays, with one carriage return behind it if there is any."""
        self.text += text
        begin, end = self._last_state(len(text) + 1)
        self.drawn = self.drawn or begin > 0
        del self.text[end + 1 :]
        del self.text[:begin]

    def come_back(self) -> None:
        """The cursor is in this line again, and what follows is drawn over it."""
        self.drawn = True
        if self.text:
            self.draw(b"\r")

    def shown(self) -> bytes:
        """What there is of it: as much of its beginning as any terminal has room for."""
        begin, end = self._last_state(SHOWN_NBYTES)
        return bytes(self.text[begin : min(end, begin + SHOWN_NBYTES)])

    def _last_state(self, nbytes: int) -> tuple[int, int]:
        """Where the last state of a progress bar lies, if it begins in the last so many bytes; else the whole line."""
        text, end = self.text, len(self.text)
        first = max(end - nbytes, 0)
        while end > first and text[end - 1] == CARRIAGE_RETURN:
            end -= 1
        return text.rfind(b"\r", first, end) + 1, end

    @property
    def is_blank(self) -> bool:
        return not visible(bytes(self.text)).strip()
