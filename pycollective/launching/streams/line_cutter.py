"""What comes of a stream, as whole lines."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from pycollective.launching.streams.rows import Rows

LONGEST_LINE = 1 << 20  # a longer one is shown in pieces
# What a program draws with: moves up and down, the cursor hidden and shown, all below erased.
_CONTROL = re.compile(rb"\n|\x1b(?:\[(\d{0,4})[ABEF]|M|\[\?25[hl]|\[0?J)")
_DRAWS = re.compile(rb"\r(?!\n)|\x1b(?:\[\d{0,4}[ABEF]|M|\[\?25[hl]|\[0?J)")
_BROKEN_OFF = re.compile(rb"\x1b(?:\[\??\d{0,4})?")
_LONGEST_BREAK = 8  # bytes of what breaks off


@dataclass
class LineCutter:
    """Its cost does not depend on how much of the last line has come."""

    raw: bool = False  # whether each byte counts, and not what a terminal would show
    rows: Rows = field(default_factory=Rows)
    _broken: bytes = b""  # a control sequence of which the end has not come

    def cut(self, data: bytes) -> bytes:
        """The whole lines that there are now, with their ends; a line that is too long comes in pieces."""
        if self.raw:
            text = self._plain(data)
        else:
            data = self._unbroken(data)
            draws = not self.rows.is_plain or _DRAWS.search(data) is not None
            text = self._drawn(data) if draws else self._plain(data)
        if len(self.rows.line.text) > LONGEST_LINE:
            text += self.last()
        return text

    def due_s(self) -> float | None:
        """Seconds until let_go() is wanted; None: not before more has come."""
        return self.rows.due_s()

    def let_go(self) -> bytes:
        """Lines that have waited in vain for being drawn anew."""
        return self.rows.let_go()

    def give_way(self) -> bytes:
        """Lines that the rank has finished, for it goes on elsewhere: those that come there come behind them."""
        return b"" if self.rows.hidden else self.rows.take(len(self.rows.above))

    def unfinished(self) -> bytes:
        """What there is of the last line, or of all lines that may still be drawn anew."""
        return b"\n".join(line.shown() for line in self.rows)

    def last(self) -> bytes:
        """What is left, without an end of line."""
        rest = b"\n".join(bytes(line.text) for line in self.rows) + self._broken
        self.rows, self._broken = Rows(self.rows.clock), b""
        return rest

    def _plain(self, data: bytes) -> bytes:
        end = data.rfind(b"\n") + 1
        line = self.rows.line
        text = b""
        if end:
            text = bytes(line.text) + data[:end]
            line.text.clear()
        if self.raw:
            line.text += data[end:]
        else:
            line.draw(data[end:])
        return text

    def _drawn(self, data: bytes) -> bytes:
        text, at = [], 0
        for found in _CONTROL.finditer(data):
            if found.start() > at:
                self.rows.line.draw(data[at : found.start()])
            at = found.end()
            text.append(self._obey(found[0][-1:], max(int(found[1] or 1), 1)))
        self.rows.line.draw(data[at:])
        return b"".join(text)

    def _obey(self, control: bytes, count: int) -> bytes:
        """Returns what is final now."""
        rows = self.rows
        if control == b"\n":
            return rows.end_line()
        if control == b"h":
            return rows.show_cursor()
        if control in b"AFM":
            rows.up(count)
        elif control in b"BE":
            rows.down(count)
        elif control == b"l":
            rows.hidden = True
        else:
            rows.below.clear()
        return b""

    def _unbroken(self, data: bytes) -> bytes:
        data, self._broken = self._broken + data, b""
        begin = data.rfind(b"\x1b", max(len(data) - _LONGEST_BREAK, 0))
        if begin >= 0 and _BROKEN_OFF.fullmatch(data, begin):
            data, self._broken = data[:begin], data[begin:]
        return data
