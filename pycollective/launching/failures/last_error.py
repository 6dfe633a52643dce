"""Finds the last error in the standard error output of a rank."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pycollective.launching.streams.lines import visible

HEADER = b"Traceback (most recent call last):"
# rich and typer draw a box with this text in its upper edge around a traceback. The error itself is
# below the box.
_EDGE = rb"(?:\xe2[\x94\x95].|[+-])+"
_BOXED = re.compile(_EDGE + rb" Traceback \(most recent call last\) " + _EDGE + rb"$")
_IN_BOX = (b"\xe2\x94", b"\xe2\x95", b"|", b"+-")  # prefixes of the other lines of a box
# These lines begin an error: a traceback, the location of a SyntaxError, a crash in C, a usage
# message, or Python's message about a wrong path.
_BEGINNING = re.compile(
    rb'  File ".*", line \d+$|Fatal Python error: |usage: |\S*python[\d.]*: (can\'t |No module |Error |error: )'
)
# torch.distributed prefixes each line of a traceback with this.
_TORCHS_PREFIX = re.compile(rb"^\[rank\d+\]: ?")
# Python 3.13 and other programs colour tracebacks if FORCE_COLOR is set
_COLOURS = re.compile(rb"\x1b\[[\d;]*m")
_MARGIN = re.compile(rb"^ +[|+] ?")  # prefix of the lines of an exception group


def plain(line: bytes) -> bytes:
    """Return the line without colours and without the prefix of torch.distributed."""
    return _TORCHS_PREFIX.sub(b"", _COLOURS.sub(b"", line) if b"\x1b" in line else line)


def is_header(line: bytes) -> bool:
    """Return whether a traceback begins in this line. A progress bar may precede it."""
    if HEADER[:-1] not in line:
        return False
    shown = visible(plain(line))
    return shown.endswith(HEADER) or _BOXED.search(shown) is not None


def begins(line: bytes) -> bool:
    """Return whether an error may begin in this line."""
    return is_header(line) or _BEGINNING.match(plain(line)) is not None


def last_header(lines: Sequence[bytes]) -> int | None:
    """Return the position of the line in which the last traceback begins, or None."""
    return next((number for number in range(len(lines) - 1, -1, -1) if is_header(lines[number])), None)


def is_error(line: bytes) -> bool:
    """Return whether a line after a header is the error that ends the traceback, not a frame."""
    bare = _MARGIN.sub(b"", plain(line))
    return bare.strip() != b"" and not bare.startswith((b" ", *_IN_BOX))


def last_error(lines: Sequence[bytes]) -> int | None:
    """Return the position of the error line of the last traceback.

    Returns None if there is no traceback, or if it was cut off before its error.
    """
    header = last_header(lines)
    if header is None:
        return None
    return next((number for number in range(header + 1, len(lines)) if is_error(lines[number])), None)


def error_lines(lines: Sequence[bytes]) -> list[bytes]:
    """Return all lines from the error line of the last traceback on.

    Without a complete traceback, returns the last lines, back to a header or an indented line.
    """
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
