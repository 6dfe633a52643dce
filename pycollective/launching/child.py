"""One rank as a child process: it has its own session and dies with the launcher.

It is reaped only when its whole process group may be killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from pycollective.bootstrap.key import key_file
from pycollective.launching import guard

PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(
    None
).prctl  # looked up here: code between fork and exec must not import or allocate much


@dataclass
class Child:
    rank: int
    process: subprocess.Popen[bytes]

    @property
    def group(self) -> int:
        return self.process.pid

    def signal(self, number: int) -> None:
        """Signal the rank and all that it started.

        This is safe until reap(): an unreaped process keeps the group's number.
        """
        try:
            os.killpg(self.group, number)
        except ProcessLookupError:  # no process is left
            pass

    def signal_alone(self, number: int) -> None:
        os.kill(self.process.pid, number)  # not Popen.send_signal, which reaps

    def exit_status(self) -> int | None:
        """Return None while it runs, else its exit code, or minus the signal that killed it.

        Does not reap the process.
        """
        info = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if info is None:
            return None
        return info.si_status if info.si_code == os.CLD_EXITED else -info.si_status

    def reap(self) -> None:
        """Kill what is left of the group, then release its number."""
        self.signal(signal.SIGKILL)
        self.process.wait()


def start(
    command: Sequence[str],
    *,
    rank: int,
    env: Mapping[str, str],
    key_fd: int | None,
    stdin: int | IO[bytes] = subprocess.DEVNULL,
    stdout: int | IO[bytes],
    stderr: int | IO[bytes],
    pass_fds: Sequence[int] = (),
) -> Child:
    parent = os.getpid()

    def die_with_parent() -> None:
        # The signal is sent when the thread that forked ends; callers start and end children in the
        # same thread.
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # the parent died before prctl()
            os._exit(1)

    process = subprocess.Popen(
        list(command),
        env=dict(env),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        pass_fds=pass_fds if key_fd is None else (key_fd, *pass_fds),
        start_new_session=True,
        preexec_fn=die_with_parent,
    )
    return Child(rank, process)


@contextlib.contextmanager
def guarded() -> Iterator[int]:
    """Run a process that kills the groups of notify_guard() if this process disappears."""
    command = [sys.executable, "-I", "-S", guard.__file__]
    null = subprocess.DEVNULL
    with subprocess.Popen(  # unbuffered: closing it needs no flush that could fail
        command, stdin=subprocess.PIPE, stdout=null, stderr=null, bufsize=0, start_new_session=True
    ) as process:
        assert process.stdin is not None
        yield process.stdin.fileno()


def notify_guard(guard_fd: int, sign: str, each: Child) -> None:
    """Tell the guard that a rank has begun ("+"), or that all its processes have ended ("-")."""
    with contextlib.suppress(BrokenPipeError):  # the guard was killed: continue without it
        os.write(guard_fd, b"%s%d\n" % (sign.encode(), each.group))


@contextlib.contextmanager
def key_files(key: bytes | None, count: int) -> Iterator[Sequence[int | None]]:
    """Yield one key file per rank, open until all ranks are started.

    Without a key there are none: the ranks get one elsewhere.
    """
    if key is None:
        yield [None] * count
        return
    with contextlib.ExitStack() as opened:
        fds = []
        for _ in range(count):
            fds.append(key_file(key))
            opened.callback(os.close, fds[-1])
        yield fds


def descriptors_hint(error: OSError) -> str:
    """Return a remedy if the error is a lack of descriptors, else ""."""
    return "; raise the limit with `ulimit -n`" if error.errno == errno.EMFILE else ""
