"""Lines as a terminal shows them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

CARRIAGE_RETURN = ord("\r")
SHOWN_NBYTES = 1 << 13  # of an unfinished line
# Cursor moves and window titles, which would affect other ranks' lines. Colours are kept.
_MOVES = re.compile(rb"\x1b(\[\??[\d;]*[A-HJKSTdfhlnrsu]|[78DEM]|\][^\x07\x1b\n]{0,1000}(\x07|\x1b\\))")


def visible(line: bytes) -> bytes:
    """Return what a terminal would show of a line with carriage returns."""
    return _MOVES.sub(b"", line).rstrip(b"\r").rpartition(b"\r")[2]


@dataclass
class Line:
    """A line that grows or is redrawn. The cost does not depend on its length."""

    text: bytearray = field(default_factory=bytearray)
    drawn: bool = False  # whether text was overwritten, or the cursor has returned
    made: bool = False  # created by a cursor move above the kept lines; not a line until it has text
    left_at: float = 0.0  # when the cursor moved to the line below

    def draw(self, text: bytes) -> None:
        """Append text.

        A progress bar keeps only its last state, plus one carriage return if present.
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
        """Return its text, at most as much as any terminal can show."""
        begin, end = self._last_state(SHOWN_NBYTES)
        return bytes(self.text[begin : min(end, begin + SHOWN_NBYTES)])

    def _last_state(self, nbytes: int) -> tuple[int, int]:
        """Return the bounds of a progress bar's last state, if within the last `nbytes` bytes.

        Otherwise returns those of the whole line.
        """
        text, end = self.text, len(self.text)
        first = max(end - nbytes, 0)
        while end > first and text[end - 1] == CARRIAGE_RETURN:
            end -= 1
        return text.rfind(b"\r", first, end) + 1, end

    @property
    def is_blank(self) -> bool:
        return not visible(bytes(self.text)).strip()
