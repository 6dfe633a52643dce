"""Splits a stream of bytes into whole lines."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from pycollective.launching.streams.rows import Rows

LONGEST_LINE = 1 << 20  # a longer line is split
# Control sequences that draw: moving the cursor up or down, hiding or showing it, erasing all
# below.
_CONTROL = re.compile(rb"\n|\x1b(?:\[(\d{0,4})[ABEF]|M|\[\?25[hl]|\[0?J)")
_DRAWS = re.compile(rb"\r(?!\n)|\x1b(?:\[\d{0,4}[ABEF]|M|\[\?25[hl]|\[0?J)")
_BROKEN_OFF = re.compile(rb"\x1b(?:\[\??\d{0,4})?")
_LONGEST_BREAK = 8  # maximum bytes of an incomplete control sequence


@dataclass
class LineCutter:
    """Splits one stream.

    The cost per byte does not depend on the length of the unfinished line.
    """

    raw: bool = False  # whether to keep every byte, and not only what a terminal would show in the end
    rows: Rows = field(default_factory=Rows)
    _broken: bytes = b""  # an incomplete control sequence at the end of the data

    def cut(self, data: bytes) -> bytes:
        """Return the lines that are final now, with line ends. A very long line is split."""
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
        """Return the seconds until let_go() is needed.

        Returns None if it is not needed before more data arrives.
        """
        return self.rows.due_s()

    def let_go(self) -> bytes:
        """Return the lines that the program has not redrawn within the time limit."""
        return self.rows.let_go()

    def give_way(self) -> bytes:
        """Return the finished lines of this stream, because the rank writes to its other stream."""
        return b"" if self.rows.hidden else self.rows.take(len(self.rows.above))

    def unfinished(self) -> bytes:
        """Return the unfinished line and all lines that may still be redrawn."""
        return b"\n".join(line.shown() for line in self.rows)

    def last(self) -> bytes:
        """Return the unfinished rest, without a line end."""
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
        """Execute a control sequence. Returns the lines that are final now."""
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
