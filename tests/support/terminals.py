"""Programs on a terminal of their own, and what it shows."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator


@contextlib.contextmanager
def on_a_terminal(*words: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A program whose three streams are a terminal, and our end of that."""
    ours, theirs = os.openpty()
    try:
        with subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs) as process:
            os.close(theirs)
            try:
                yield process, ours
            finally:
                process.kill()
    finally:
        os.close(ours)


def read_until(terminal: int, *wanted: bytes) -> bytes:
    """What the terminal shows until all this is seen. pytest-timeout ends a wait in vain."""
    text = b""
    while not all(each in text for each in wanted):
        text += os.read(terminal, 4096)
    return text


def read_to_end(terminal: int) -> bytes:
    """What the terminal shows until no program has it any more."""
    text = b""
    with contextlib.suppress(OSError):  # EIO: that is so
        while data := os.read(terminal, 4096):
            text += data
    return text


def rows_of(text: bytes) -> list[str]:
    """What is left on an endless screen in the end, without empty rows; of several spaces one is kept."""
    rows: list[str] = [""]
    row = column = 0
    for word in re.findall(r"\x1b\[\d*[a-zA-Z]|[\r\n]|[^\x1b\r\n]+", text.decode()):
        if word == "\r":
            column = 0
        elif word == "\n":
            row += 1
            rows += [""] * (row == len(rows))
        elif word == "\x1b[A":
            row -= 1
        elif word == "\x1b[K":
            rows[row] = rows[row][:column]
        elif word[0] != "\x1b":  # else a colour
            rows[row] = rows[row][:column].ljust(column) + word + rows[row][column + len(word) :]
            column += len(word)
    return [" ".join(each.split()) for each in rows if each.strip()]
