"""The launcher's terminal: background jobs, the debugger's lock, and restoring settings."""

from __future__ import annotations

import contextlib
import os
import termios
from collections.abc import Iterator
from pathlib import Path


def in_background(fd: int) -> bool:
    """Return whether reading from the terminal would stop this process (SIGTTIN).

    Returns false if `fd` is not this process's controlling terminal.
    """
    try:
        return os.tcgetpgrp(fd) != os.getpgrp()
    except OSError:
        return False


def is_taken(fd: int) -> bool:
    """Return whether a rank's debugger has locked the terminal; see pycollective.debugger.

    The check does not acquire the lock.
    """
    try:
        place = os.fstat(fd)
        locks = Path("/proc/locks").read_text()
    except OSError:
        return False
    name = f" {os.major(place.st_dev):02x}:{os.minor(place.st_dev):02x}:{place.st_ino} "
    return any(" FLOCK " in line and name in line for line in locks.splitlines())


@contextlib.contextmanager
def settings_kept(fd: int) -> Iterator[None]:
    """Restore the terminal's settings after the block.

    A rank that is killed while it has the terminal in raw mode, as in ipdb, would leave it without
    echo and line ends.
    """
    try:
        before = (
            None if in_background(fd) else termios.tcgetattr(fd)
        )  # in the background the current settings are the shell's, so none are saved
    except termios.error:  # `fd` is not a terminal
        before = None
    if before is None:
        yield
        return
    try:
        yield
    finally:
        if not in_background(fd):  # in the background the terminal belongs to another program
            with contextlib.suppress(termios.error):
                termios.tcsetattr(fd, termios.TCSANOW, before)
