"""Programs on a terminal of their own, and what it shows."""

from __future__ import annotations

import contextlib
import os
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
