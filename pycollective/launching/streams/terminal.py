"""The terminal of a launcher: whether it may read there, whether a rank has it, and what its ranks have set."""

from __future__ import annotations

import contextlib
import os
import termios
from collections.abc import Iterator
from pathlib import Path


def in_background(fd: int) -> bool:
    """Whether this process would be stopped if it read from that terminal. False if it is not its terminal."""
    try:
        return os.tcgetpgrp(fd) != os.getpgrp()
    except OSError:
        return False


def is_taken(fd: int) -> bool:
    """Whether a rank's debugger has locked that terminal, see pycollective.debugger. Asked without locking it."""
    try:
        place = os.fstat(fd)
        locks = Path("/proc/locks").read_text()
    except OSError:
        return False
    name = f" {os.major(place.st_dev):02x}:{os.minor(place.st_dev):02x}:{place.st_ino} "
    return any(" FLOCK " in line and name in line for line in locks.splitlines())


@contextlib.contextmanager
def settings_kept(fd: int) -> Iterator[None]:
    """A rank that is killed while it has the terminal for itself, as in ipdb, leaves it without echo and line ends."""
    try:
        before = (
            None if in_background(fd) else termios.tcgetattr(fd)
        )  # else they are those of the shell's prompt
    except termios.error:  # no terminal
        before = None
    if before is None:
        yield
        return
    try:
        yield
    finally:
        if not in_background(fd):  # else they are another program's now
            with contextlib.suppress(termios.error):
                termios.tcsetattr(fd, termios.TCSANOW, before)
