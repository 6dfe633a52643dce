"""One rank as a child process, which has its own session and dies with the launcher.

Its process group can be signalled until reap(), which kills the processes left in the group.
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
).prctl  # looked up here, because code between fork and exec must not import or allocate much


@dataclass
class Child:
    rank: int
    process: subprocess.Popen[bytes]

    @property
    def group(self) -> int:
        return self.process.pid

    def signal(self, number: int) -> None:
        """Signal the rank and all processes of its group.

        This is safe until reap(): while the rank is not reaped, no other process gets its group's
        number.
        """
        try:
            os.killpg(self.group, number)
        except ProcessLookupError:  # no process of the group is left
            pass

    def signal_alone(self, number: int) -> None:
        os.kill(self.process.pid, number)  # not Popen.send_signal, which reaps

    def exit_status(self) -> int | None:
        """Return the rank's exit code, or None while it runs.

        If a signal killed the rank, returns minus the signal's number. Does not reap the process.
        """
        info = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if info is None:
            return None
        return info.si_status if info.si_code == os.CLD_EXITED else -info.si_status

    def reap(self) -> None:
        """Kill the rest of the process group, then reap the rank, which frees its id."""
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
        # The kernel sends the signal when the forking thread ends, even if its process still runs.
        # Therefore the thread that starts children also ends them.
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
    """Run a guard process while the block runs. Yields the descriptor for notify_guard().

    If this process disappears, the guard kills the process groups that are registered with it.
    """
    command = [sys.executable, "-I", "-S", guard.__file__]
    null = subprocess.DEVNULL
    with subprocess.Popen(  # unbuffered: closing the pipe then needs no flush, which could fail
        command, stdin=subprocess.PIPE, stdout=null, stderr=null, bufsize=0, start_new_session=True
    ) as process:
        assert process.stdin is not None
        yield process.stdin.fileno()


def notify_guard(guard_fd: int, sign: str, each: Child) -> None:
    """Inform the guard that a rank has begun ("+"), or that all its processes have ended ("-")."""
    with contextlib.suppress(BrokenPipeError):  # the guard was killed: continue without it
        os.write(guard_fd, b"%s%d\n" % (sign.encode(), each.group))


@contextlib.contextmanager
def key_files(key: bytes | None, count: int) -> Iterator[Sequence[int | None]]:
    """Yield a descriptor of a key file for each rank. All are closed at the end of the block.

    Without a key the descriptors are None, because the ranks then use another source of the key.
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
    """Return advice if the error is a lack of descriptors, else ""."""
    return "; raise the limit with `ulimit -n`" if error.errno == errno.EMFILE else ""
