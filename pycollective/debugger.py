"""Python's debugger in one rank, on the terminal of the launcher.

This module is imported at the first call of breakpoint().
"""

from __future__ import annotations

import bdb
import fcntl
import functools
import os
import pdb
import stat
import sys
from _thread import get_ident  # importing threading takes long
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import IO, Any

from pycollective.errors import Unsupported

__all__ = ["hook", "stop"]

ERASE = "\r\x1b[K"


def hook(*, header: str | None = None, **_: object) -> None:
    """The breakpoint() hook in ranks of `pycollective run` and pc.run.

    PYTHONBREAKPOINT overrides it.
    """
    debugger = _debugger()
    if header is not None:
        debugger.message(header)
    debugger.set_trace(sys._getframe(1))


def stop(frame: FrameType, before_going_on: Callable[[], None]) -> None:
    """Open the debugger in `frame`. `before_going_on` runs before the program resumes."""
    debugger = _debugger()
    debugger.reset()
    debugger.interaction(frame, None)
    if debugger.quitting:
        raise bdb.BdbQuit
    before_going_on()
    goes_on = debugger.goes_on
    if debugger.breaks or not goes_on:
        # No function may be called after set_trace(), because it would be traced instead of the
        # program.
        debugger.set_trace(frame)
        if goes_on:
            debugger.set_continue()


class RankDebugger(pdb.Pdb):
    """The debugger of one rank. A rank that stops holds the terminal until its program resumes."""

    def __init__(self, terminal: str | None) -> None:
        self.goes_on = False
        # descriptor of the terminal; the rank that uses the terminal holds a lock on it
        self.lock: int | None = None
        if terminal is None:
            super().__init__(nosigint=True)
        else:
            self.lock = os.open(terminal, os.O_RDWR | os.O_NOCTTY)
            super().__init__(stdin=_opened(self.lock, "r"), stdout=_opened(self.lock, "w"), nosigint=True)
        rank = os.environ.get("RANK")
        self.prompt = f"[{rank}] (Pdb) " if rank else "(Pdb) "

    def interaction(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401  # versions of Python differ
        self.goes_on = False
        self.take_terminal()
        try:
            super().interaction(*args, **kwargs)
        finally:
            if self.lock is not None and (self.goes_on or self.quitting):
                fcntl.flock(self.lock, fcntl.LOCK_UN)

    def take_terminal(self) -> None:
        if self.lock is None:
            return
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.message(
                f"rank {os.environ.get('RANK')} stops too, and waits for the rank that has the terminal"
            )
            fcntl.flock(self.lock, fcntl.LOCK_EX)
        self.stdout.write(
            ERASE
        )  # erases the launcher's unfinished line, which is not redrawn while the lock is held
        self.stdout.flush()

    def set_continue(self) -> None:
        super().set_continue()
        self.goes_on = True


def _debugger() -> RankDebugger:
    if sys.stdin is not None and sys.stdin.isatty():
        return _debugger_at(os.ttyname(sys.stdin.fileno()), os.getpid(), get_ident())
    if terminal := _launchers_terminal():
        return _debugger_at(terminal, os.getpid(), get_ident())
    if _is_answered():
        return RankDebugger(None)
    rank = os.environ.get("RANK", "?")
    raise Unsupported(
        f"breakpoint: rank {rank} has no terminal, and its launcher has none: start `pycollective run` on a terminal; "
        f"or with `--stdin {rank}`, for answers from a pipe; or attach a debugger, as docs/debugging.md says"
    )


@functools.cache
def _debugger_at(terminal: str, pid: int, thread: int) -> RankDebugger:
    """Return the same debugger for all breakpoints of a thread.

    The process id is an argument so that a forked child gets a debugger of its own: a lock belongs
    to an open file description, which the child would share.
    """
    return RankDebugger(terminal)


def _opened(fd: int, mode: str) -> IO[str]:
    return open(os.dup(fd), mode)  # closed when the debugger is destroyed


def _launchers_terminal() -> str | None:
    """Return the path of the launcher's terminal, or None if it has none.

    The launcher is the parent of the first process of this rank's session: every rank has its own
    session.
    """
    try:
        first = Path(f"/proc/{os.getsid(0)}/stat").read_bytes()
        launcher = int(first.rpartition(b")")[2].split()[1])
        terminal = os.readlink(f"/proc/{launcher}/fd/0")
        fd = os.open(terminal, os.O_RDWR | os.O_NOCTTY)
    except OSError:
        return None
    try:
        return terminal if os.isatty(fd) else None
    finally:
        os.close(fd)


def _is_answered() -> bool:
    """Return whether standard input is a pipe or a named file, from which commands can be read.

    The standard input of pc.run's ranks is an unnamed file, and does not count.
    """
    try:
        kind = os.fstat(0)
        name = os.readlink("/proc/self/fd/0")
    except OSError:
        return False
    return stat.S_ISFIFO(kind.st_mode) or (stat.S_ISREG(kind.st_mode) and not name.endswith(" (deleted)"))
