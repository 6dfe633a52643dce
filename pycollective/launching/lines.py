"""Lines as a terminal shows them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

LONGEST_LINE = 1 << 20  # a longer one is shown in pieces
CARRIAGE_RETURN = ord("\r")
SHOWN_NBYTES = 1 << 13  # of an unfinished line
# Moves of the cursor and titles of windows, which would lead into the lines of other ranks. Colours stay.
_MOVES = re.compile(rb"\x1b(\[\??[\d;]*[A-HJKSTdfhlnrsu]|[78DEM]|\][^\x07\x1b\n]{0,1000}(\x07|\x1b\\))")


def visible(line: bytes) -> bytes:
    """What a terminal would show of a line that is drawn anew by carriage returns."""
    return _MOVES.sub(b"", line).rstrip(b"\r").rpartition(b"\r")[2]


@dataclass
class LineCutter:
    """Cuts what comes into whole lines. Its cost does not depend on how much of the last line has come."""

    raw: bool = False  # whether each byte counts, and not what a terminal would show
    _rest: bytearray = field(default_factory=bytearray)

    def cut(self, data: bytes) -> bytes:
        """The whole lines that there are now, with their ends; a line that is too long comes in pieces."""
        end = data.rfind(b"\n") + 1
        text = b""
        if end:
            text = bytes(self._rest) + data[:end]
            self._rest.clear()
        self._rest += data[end:]
        if not self.raw:
            self.leave_out_what_is_drawn_over(len(data) - end)
        if len(self._rest) > LONGEST_LINE:
            text += self.last()
        return text

    def leave_out_what_is_drawn_over(self, new_nbytes: int) -> None:
        """Of a progress bar only its last state, with one carriage return behind it if there is any."""
        begin, end = self._last_state(new_nbytes + 1)
        del self._rest[end + 1 :]
        del self._rest[:begin]

    def unfinished(self) -> bytes:
        """What there is of the last line: as much of its beginning as any terminal has room for."""
        begin, end = self._last_state(SHOWN_NBYTES)
        return bytes(self._rest[begin : min(end, begin + SHOWN_NBYTES)])

    def _last_state(self, nbytes: int) -> tuple[int, int]:
        """Where the last state of a progress bar lies, if it begins in the last so many bytes; else the whole line."""
        rest, end = self._rest, len(self._rest)
        first = max(end - nbytes, 0)
        while end > first and rest[end - 1] == CARRIAGE_RETURN:
            end -= 1
        return rest.rfind(b"\r", first, end) + 1, end

    def last(self) -> bytes:
        """What is left, without an end of line."""
        rest = bytes(self._rest)
        self._rest.clear()
        return rest
