"""Where the last error stands in what a rank has written to its standard error."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pycollective.launching.streams.lines import visible

HEADER = b"Traceback (most recent call last):"
# rich and typer draw a box with this in its upper edge. The error stands below the box.
_EDGE = rb"(?:\xe2[\x94\x95].|[+-])+"
_BOXED = re.compile(_EDGE + rb" Traceback \(most recent call last\) " + _EDGE + rb"$")
_IN_BOX = (b"\xe2\x94", b"\xe2\x95", b"|", b"+-")  # how its further lines begin
# A traceback, a SyntaxError's place, a crash in C, a usage message, and what Python itself says of a wrong path.
_BEGINNING = re.compile(
    rb'  File ".*", line \d+$|Fatal Python error: |usage: |\S*python[\d.]*: (can\'t |No module |Error |error: )'
)
_TORCHS_PREFIX = re.compile(rb"^\[rank\d+\]: ?")  # torch.distributed puts it before each line of a traceback
_COLOURS = re.compile(rb"\x1b\[[\d;]*m")  # Python 3.13 and others colour tracebacks for FORCE_COLOR
_MARGIN = re.compile(rb"^ +[|+] ?")  # of the lines of an exception group


def plain(line: bytes) -> bytes:
    """The line as Python writes it without colours."""
    return _TORCHS_PREFIX.sub(b"", _COLOURS.sub(b"", line) if b"\x1b" in line else line)


def is_header(line: bytes) -> bool:
    """Whether a traceback begins here. A progress bar may stand before it in its line."""
    if HEADER[:-1] not in line:
        return False
    shown = visible(plain(line))
    return shown.endswith(HEADER) or _BOXED.search(shown) is not None


def begins(line: bytes) -> bool:
    """Whether an error may begin here."""
    return is_header(line) or _BEGINNING.match(plain(line)) is not None


def last_header(lines: Sequence[bytes]) -> int | None:
    """Where the last traceback begins."""
    return next((number for number in range(len(lines) - 1, -1, -1) if is_header(lines[number])), None)


def is_error(line: bytes) -> bool:
    """Whether a line below a header is the error itself, which ends the traceback, and no frame."""
    bare = _MARGIN.sub(b"", plain(line))
    return bare.strip() != b"" and not bare.startswith((b" ", *_IN_BOX))


def last_error(lines: Sequence[bytes]) -> int | None:
    """Where the error of the last traceback stands. None: there is no traceback, or it breaks off in its frames."""
    header = last_header(lines)
    if header is None:
        return None
    return next((number for number in range(header + 1, len(lines)) if is_error(lines[number])), None)


def error_lines(lines: Sequence[bytes]) -> list[bytes]:
    """Of a traceback, or what else ended a rank: the error itself, which stands below the frames, and what follows."""
    begin = last_error(lines)
    if begin is not None:
        return [_TORCHS_PREFIX.sub(b"", line) for line in lines[begin:]]
    found: list[bytes] = []
    for line in map(plain, reversed(lines)):
        if found and (line[:1] == b" " or is_header(line)):
            break
        if line.strip() or found:
            found.append(line)
    return found[::-1]
