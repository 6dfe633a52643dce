"""Lines as a terminal shows them."""

from __future__ import annotations

import re

LONGEST_LINE = 1 << 20  # a longer one is shown in pieces
# Moves of the cursor, which would lead into the lines of other ranks. Colours stay.
_MOVES = re.compile(rb"\x1b\[\??[\d;]*[A-HJKSTfhlnsu]")


def visible(line: bytes) -> bytes:
    """What a terminal would show of a line that is drawn anew by carriage returns."""
    return _MOVES.sub(b"", line).rstrip(b"\r").rpartition(b"\r")[2]
