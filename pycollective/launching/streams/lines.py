"""Lines of output as a terminal shows them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

CARRIAGE_RETURN = ord("\r")
SHOWN_NBYTES = 1 << 13  # at most this much of an unfinished line is shown
# Cursor moves and window titles, which would affect the lines of other ranks. Colours are kept.
_MOVES = re.compile(rb"\x1b(\[\??[\d;]*[A-HJKSTdfhlnrsu]|[78DEM]|\][^\x07\x1b\n]{0,1000}(\x07|\x1b\\))")


def visible(line: bytes) -> bytes:
    """Return what a terminal would finally show of a line with carriage returns."""
    return _MOVES.sub(b"", line).rstrip(b"\r").rpartition(b"\r")[2]


@dataclass
class Line:
    """A line that grows or is redrawn.

    The cost of a change does not depend on the line's length.
    """

    text: bytearray = field(default_factory=bytearray)
    drawn: bool = False  # whether text was overwritten, or the cursor has returned to the line
    made: bool = False  # created by moving the cursor above the kept lines; it is dropped if it gets no text
    left_at: float = 0.0  # when the cursor moved to the line below

    def draw(self, text: bytes) -> None:
        """Append text.

        Only the last state of a progress bar is kept, with at most one carriage return at its end.
        """
        self.text += text
        begin, end = self._last_state(len(text) + 1)
        self.drawn = self.drawn or begin > 0
        del self.text[end + 1 :]
        del self.text[:begin]

    def come_back(self) -> None:
        """Move the cursor back into this line; further text overwrites it."""
        self.drawn = True
        if self.text:
            self.draw(b"\r")

    def shown(self) -> bytes:
        """Return the text of the last state, at most SHOWN_NBYTES."""
        begin, end = self._last_state(SHOWN_NBYTES)
        return bytes(self.text[begin : min(end, begin + SHOWN_NBYTES)])

    def _last_state(self, nbytes: int) -> tuple[int, int]:
        """Return the bounds of the text after the last carriage return.

        Only the last `nbytes` bytes are searched; if no carriage return is found, the bounds are
        those of the whole line. Carriage returns at the end do not count.
        """
        text, end = self.text, len(self.text)
        first = max(end - nbytes, 0)
        while end > first and text[end - 1] == CARRIAGE_RETURN:
            end -= 1
        return text.rfind(b"\r", first, end) + 1, end

    @property
    def is_blank(self) -> bool:
        return not visible(bytes(self.text)).strip()
