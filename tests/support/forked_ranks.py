"""Ranks of testing.run and pc.run that a fork server forks instead of starting interpreters.

A fresh rank takes seconds to import torch, JAX and pytest, far longer than most tests. All else is
as with a fresh rank: a child of this process with its own session, the same pipes, keys, guard,
deadlines and death signal.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pycollective.launching import child
from pycollective.launching.environment import with_debugger

PROGRAM = "import sys; sys.path.insert(0, sys.argv[1]); from fork_server import serve; exec(serve(int(sys.argv[2])))"
# scikit-learn, JAX and torch set these themselves.
LIBRARIES_OWN = ("KMP_", "TF_CPP_", "TORCHINDUCTOR_", "TPU_")
EARLY = ("PYCOLLECTIVE_REPLACES",)  # read when torch is imported
LATE = ("OMP_NUM_THREADS", "PYTEST_", "XDG_CONFIG_HOME", *LIBRARIES_OWN)
PR_SET_CHILD_SUBREAPER = 36
# The words by which the file of a test shows which libraries its ranks import, by level of the fork
# server. If they mislead, the ranks import what is missing themselves.
WORDS = (
    re.compile(""),
    re.compile(r"torch|arrays import|import matrix"),
    re.compile(r"jax|optim|ddp|torch\.compile|sklearn|import programs|trainers|PAGES_WITH_TORCH"),
)


class ForkedProcess:
    """The part of subprocess.Popen that the launchers use."""

    def __init__(self, pid: int, stdout: IO[bytes], stderr: IO[bytes] | None) -> None:
        self.pid, self.stdout, self.stderr = pid, stdout, stderr
        self.returncode: int | None = None

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode


@functools.cache
def level_of(test: str) -> int:
    """Returns the level of the server that forks the ranks of the tests in this file."""
    (path,) = Path(__file__).parents[1].glob(f"python/*/{test}")
    text = path.read_text()
    return max(level for level, words in enumerate(WORDS) if words.search(text))


@dataclass
class Server:
    """A server of one level, which has imported what its ranks need."""

    pid: int
    requests: socket.socket

    def ask(self, request: Mapping[str, object] | None, descriptors: Sequence[int]) -> int:
        """Returns the number of the forked process: this rank, or the server of the next level."""
        socket.send_fds(self.requests, [json.dumps(request).encode()], descriptors)
        return int(self.requests.recv(16))

    def end(self) -> None:
        self.requests.close()
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


class ForkServer:
    """The client's side. Each server begins with the first rank that it can fork."""

    def __init__(self, late: tuple[str, ...]) -> None:
        """`late`: prefixes of variables that no import reads.

        Ranks that differ in other variables are fresh.
        """
        self.late = (*late, *LATE)
        # One thread, because BLAS would start more as soon as it is imported. Every rank has the
        # other two variables.
        own = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}
        self.env = with_debugger({**os.environ, **own})
        self.start_fresh = child.start
        self.lock = threading.Lock()
        self.servers: list[Server] = []  # by level

    def start(self, command: Sequence[str], **how: Any) -> child.Child:
        """Replaces pycollective.launching.child.start."""
        if not self.can_fork(command, how):
            return self.start_fresh(command, **how)
        with contextlib.ExitStack() as given, contextlib.ExitStack() as on_error:

            def piped() -> tuple[int, IO[bytes]]:
                read_end, write_end = os.pipe()
                given.callback(os.close, write_end)
                return write_end, on_error.enter_context(open(read_end, "rb"))

            may_begin, begin = os.pipe()
            given.callback(os.close, may_begin)
            given.callback(os.close, begin)
            out, stdout = piped()
            err, stderr = (out, None) if how["stderr"] == subprocess.STDOUT else piped()
            passed = [*how["pass_fds"], *([] if how["key_fd"] is None else [how["key_fd"]])]
            request = {
                "parent": os.getpid(),
                "cwd": os.getcwd(),
                "env": dict(how["env"]),
                "program": command[2],
                "arguments": command[3:],
                "descriptors": [0, 1, 2, *passed],
            }
            pid = self.fork(request, [may_begin, how["stdin"].fileno(), out, err, *passed])
            os.write(begin, b".")
            on_error.pop_all()
        return child.Child(how["rank"], ForkedProcess(pid, stdout, stderr))  # type: ignore[arg-type]

    def can_fork(self, command: Sequence[str], how: Mapping[str, Any]) -> bool:
        """Returns whether it is a rank of a job, with no variables that affect imports."""
        return (
            list(command[:2]) == [sys.executable, "-c"]
            and how["stdout"] == subprocess.PIPE
            and self.early(how["env"]) == self.early(self.env)
        )

    def early(self, env: Mapping[str, str]) -> dict[str, str]:
        return {name: value for name, value in env.items() if name in EARLY or not name.startswith(self.late)}

    def fork(self, request: Mapping[str, object], descriptors: Sequence[int]) -> int:
        with self.lock, child_subreaper():
            try:
                return self.server(self.level()).ask(request, descriptors)
            except (
                BaseException
            ):  # also the exception of a deadline or of Ctrl-C: a late answer would be taken for the next one
                self.end()
                raise

    def level(self) -> int:
        """The level of the running test; outside of tests, the level with everything."""
        test = os.environ.get("PYTEST_CURRENT_TEST", "").partition("::")[0]
        return level_of(Path(test).name) if test else len(WORDS) - 1

    def server(self, level: int) -> Server:
        while len(self.servers) <= level:
            self.servers.append(self.begin_next())
        return self.servers[level]

    def begin_next(self) -> Server:
        requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with contextlib.ExitStack() as on_error, theirs:
            on_error.callback(requests.close)
            before = self.servers[-1] if self.servers else None
            pid = before.ask(None, [theirs.fileno()]) if before else self.begin_first(theirs)
            on_error.pop_all()
        server = Server(pid, requests)
        try:
            if requests.recv(16) != b"ready":
                raise RuntimeError("the fork server has not begun; what it says is above")
        except BaseException:
            server.end()
            raise
        return server

    def begin_first(self, theirs: socket.socket) -> int:
        command = [sys.executable, "-c", PROGRAM, str(Path(__file__).parent), str(theirs.fileno())]
        process = subprocess.Popen(
            command,
            env=self.env,
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        process.returncode = 0  # the thread that ends it also waits for it
        return process.pid

    def end(self) -> None:
        """Ends the servers.

        A rank that was just forked, and that start() does not know yet, ends by itself.
        """
        while self.servers:
            self.servers.pop().end()


@contextlib.contextmanager
def child_subreaper() -> Iterator[None]:
    """Makes this process the parent of its children's orphans, that is, of the forked ranks."""
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
