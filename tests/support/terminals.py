"""Programs on a terminal of their own, and what the terminal shows."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator


@contextlib.contextmanager
def on_a_terminal(*words: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Runs a program with a terminal as its three streams.

    Yields it and our end of the terminal.
    """
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
    """Returns what the terminal shows until all of this is seen.

    pytest-timeout ends a vain wait.
    """
    text = b""
    while not all(each in text for each in wanted):
        text += os.read(terminal, 4096)
    return text


def read_to_end(terminal: int) -> bytes:
    """Returns what the terminal shows until no program has it open."""
    text = b""
    with contextlib.suppress(OSError):  # EIO: no program has it open
        while data := os.read(terminal, 4096):
            text += data
    return text


def rows_of(text: bytes) -> list[str]:
    """Returns the final rows of an endless screen, without empty rows and runs of spaces."""
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
