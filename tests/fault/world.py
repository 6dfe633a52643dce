"""Worlds of forked ranks, and their supervisor, which never waits without a deadline.

The supervisor leaves nothing behind. The process that runs the trials has imported everything but
never called init(), so that a rank costs one fork. A rank and its supervisor exchange lines of JSON
over two pipes, and the supervisor alone decides which rank does what and when.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from .rank import Rank

PATIENCE_S = 20.0  # for anything that takes milliseconds on an idle machine
LOOKS = 3  # at a thread, before it counts as sleeping
STACKS_S = 1.0  # for a rank to print its stacks
SHOWN_LINES = 60
RANK_RAISED = 70  # exit status of a rank with a body that raised
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
libc = ctypes.CDLL(None, use_errno=True)


class Hang(Exception):
    """A rank did not do in time what it was to do."""


class Broken(Exception):
    """A rank ended, or sent another event than the expected one."""


@dataclass(frozen=True)
class Event:
    kind: str
    at: float  # CLOCK_MONOTONIC, which all processes share
    facts: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.facts[name]


class Supervised:
    """One rank, as its supervisor sees it."""

    def __init__(self, pid: int, commands: int, events: int, log: int) -> None:
        self.pid, self.commands, self.events, self.log = pid, commands, events, log
        self.pidfd = os.pidfd_open(pid)
        self.unread = b""
        self.pending: deque[Event] = deque()
        self.open = True  # whether its end of the pipe of events is open

    def take(self) -> None:
        more = os.read(self.events, 1 << 20)
        self.open = bool(more)
        *lines, self.unread = (self.unread + more).split(b"\n")
        self.pending += (Event(*json.loads(line)) for line in lines)

    def ended(self) -> bool:
        return bool(poll([self.pidfd], 0))

    def sleeps(self, *, all_threads: bool = False) -> bool:
        """Returns whether its main thread, or each of its threads, waits for something."""
        threads = os.listdir(f"/proc/{self.pid}/task") if all_threads else [self.pid]
        return all(thread_state(self.pid, thread) == "S" for thread in threads)


class World:
    """`size` ranks, each of which runs `body(rank)`. Use it in a with statement.

    Parameters:
        missing: ranks that are never started.
        env: environment variables of the ranks.
        command: what to execute instead of body; it makes its Rank by `rank_from_arguments()`.
    """

    def __init__(
        self,
        size: int,
        body: Callable[[Rank], object] | None = None,
        *,
        missing: Collection[int] = (),
        env: Mapping[str, str] | None = None,
        command: list[str] | None = None,
    ) -> None:
        self.size = size
        self.ranks: dict[int, Supervised] = {}
        # No other process gets this port: bound but not listening, so rank 0's store can bind to it
        # and listen.
        self.reserved = socket.socket().detach()
        with socket.socket(fileno=os.dup(self.reserved)) as port:
            port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            port.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{port.getsockname()[1]}"
        self.lifeline, self.held_lifeline = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        for rank in range(size):
            if rank not in missing:
                self.ranks[rank] = self._fork(rank, body, env or {}, command)

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- starting

    def _fork(self, rank: int, body: Any, env: Mapping[str, str], command: list[str] | None) -> Supervised:
        heard, commands = os.pipe()
        events, said = os.pipe()
        log = os.memfd_create(f"rank-{rank}")
        supervisor = os.getpid()
        if (pid := os.fork()) == 0:
            self._be(rank, body, env, command, supervisor, heard, said, log)
        with contextlib.suppress(OSError):  # the child makes the same call; the first of the two counts
            os.setpgid(pid, pid)
        os.close(heard)
        os.close(said)
        return Supervised(pid, commands, events, log)

    def _be(
        self,
        rank: int,
        body: Callable[[Rank], object],
        env: Mapping[str, str],
        command: list[str] | None,
        supervisor: int,
        heard: int,
        said: int,
        log: int,
    ) -> NoReturn:
        """Runs one rank. It never returns into the supervisor's frames, which hold descriptors."""
        status = RANK_RAISED
        try:
            os.setpgid(0, 0)  # with all processes that it forks
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != supervisor:
                os._exit(0)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(log, 1)
            os.dup2(log, 2)
            keep = {0, 1, 2, heard, said, self.lifeline}
            for fd in map(int, os.listdir("/proc/self/fd")):
                if fd not in keep:
                    with contextlib.suppress(OSError):  # the listing's own
                        os.close(fd)
            os.environ.update(env)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
            pipes = (heard, said, self.lifeline)
            if command is not None:
                for fd in pipes:
                    os.set_inheritable(fd, True)
                argument = json.dumps([rank, self.size, self.address, *pipes])
                os.execv(command[0], [*command, argument])
            faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)
            me = Rank(rank, self.size, self.address, *pipes)
            try:
                status = int(body(me) or 0)
            except BaseException as error:
                me.report("died", traceback="".join(traceback.format_exception(error)))
                sys.stderr.flush()
        finally:
            os._exit(status)

    # ---- events

    def _pump(self, within_s: float) -> None:
        """Takes what the ranks report, as soon as one reports something."""
        by_fd = {each.events: each for each in self.ranks.values() if each.open}
        for fd in poll(by_fd, within_s):
            by_fd[fd].take()

    def pause(self, seconds: float) -> None:
        """Lets the ranks run meanwhile."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if not any(each.open for each in self.ranks.values()):
                return  # no rank is left
            self._pump(left)

    def expect(
        self, kind: str, ranks: Collection[int] | None = None, within_s: float = PATIENCE_S
    ) -> dict[int, Event]:
        """Returns the next event of each of these ranks, which must be of this kind."""
        waited_for = set(self.ranks if ranks is None else ranks)
        until = time.monotonic() + within_s
        found: dict[int, Event] = {}
        while True:
            for rank in list(waited_for):
                each = self.ranks[rank]
                if each.pending:
                    found[rank] = each.pending.popleft()
                    waited_for.discard(rank)
                    if found[rank].kind != kind:
                        said = found[rank].facts.get("traceback") or f"{found[rank]}"
                        raise Broken(f"rank {rank} was to say '{kind}', not '{found[rank].kind}': {said}")
                elif not each.open:
                    raise Broken(f"rank {rank} was to say '{kind}' and ended\n{self.last_words(rank)}")
            if not waited_for:
                return found
            if (left := until - time.monotonic()) <= 0:
                raise Hang(
                    f"no '{kind}' within {within_s:g} s from {sorted(waited_for)}\n{self.stacks(waited_for)}"
                )
            self._pump(left)

    def until_blocked(self, ranks: Collection[int], within_s: float = PATIENCE_S) -> None:
        """Waits until each of these ranks, which began a call, waits in it or has ended it."""
        self._until_asleep(ranks, within_s, all_threads=False)

    def until_idle(self, ranks: Collection[int], within_s: float = PATIENCE_S) -> None:
        """Waits until each of these ranks, which make no call, has handled all its commands."""
        self._until_asleep(ranks, within_s, all_threads=True)

    def _until_asleep(self, ranks: Collection[int], within_s: float, *, all_threads: bool) -> None:
        until = time.monotonic() + within_s
        # consecutive looks that found all asleep at once, because a rank that is awake may wake
        # another
        looks = 0
        while looks < LOOKS:
            self._pump(0.0005)
            busy = [rank for rank in ranks if not self._rests(self.ranks[rank], all_threads=all_threads)]
            looks = 0 if busy else looks + 1
            if time.monotonic() > until:
                raise Hang(f"ranks {busy} neither wait nor return within {within_s:g} s\n{self.stacks(busy)}")

    def _rests(self, each: Supervised, *, all_threads: bool) -> bool:
        ended = not all_threads and (bool(each.pending) or not each.open)
        return ended or each.sleeps(all_threads=all_threads)

    # ---- acting

    def send(self, command: object, ranks: Collection[int] | None = None) -> None:
        for rank in self.ranks if ranks is None else ranks:
            with contextlib.suppress(
                BrokenPipeError
            ):  # it has ended, which the code that waits for its answer reports
                os.write(self.ranks[rank].commands, json.dumps(command).encode() + b"\n")

    @staticmethod
    def now() -> float:
        return time.monotonic()

    def signal(self, rank: int, number: int) -> float:
        """Sends a signal to the rank alone. Returns the time."""
        now = time.monotonic()
        signal.pidfd_send_signal(self.ranks[rank].pidfd, number)
        return now

    def exit_statuses(
        self, ranks: Collection[int] | None = None, within_s: float = PATIENCE_S
    ) -> dict[int, int]:
        """Waits for the exit of these ranks.

        Returns their exit statuses in the form of subprocess.
        """
        waited_for = set(self.ranks if ranks is None else ranks)
        until = time.monotonic() + within_s
        statuses = {}
        while waited_for:
            for rank in list(waited_for):
                if self.ranks[rank].ended():
                    seen = os.waitid(os.P_PIDFD, self.ranks[rank].pidfd, os.WEXITED | os.WNOWAIT)
                    assert seen is not None
                    code = seen.si_status
                    statuses[rank] = code if seen.si_code == os.CLD_EXITED else -code
                    waited_for.discard(rank)
            left = until - time.monotonic()
            if waited_for and left <= 0:
                raise Hang(
                    f"{sorted(waited_for)} did not end within {within_s:g} s\n{self.stacks(waited_for)}"
                )
            if waited_for:
                poll([self.ranks[rank].pidfd for rank in waited_for], left)
        return statuses

    # ---- ending

    def last_words(self, rank: int) -> str:
        each = self.ranks[rank]
        text = os.pread(each.log, 1 << 20, 0).decode(errors="replace")
        lines = "\n".join(text.splitlines()[-SHOWN_LINES:])
        return f"-- rank {rank} (pid {each.pid}) printed:\n{lines}" if lines else ""

    def stacks(self, ranks: Collection[int]) -> str:
        """Returns what these ranks' threads wait for in the kernel, and their Python stacks."""
        texts = []
        for rank in sorted(ranks):
            each = self.ranks[rank]
            if each.ended():
                texts.append(f"rank {rank} has ended\n{self.last_words(rank)}")
                continue
            texts.append(f"rank {rank} (pid {each.pid}): {', '.join(kernel_positions(each.pid))}")
            before = os.fstat(each.log).st_size
            signal.pidfd_send_signal(each.pidfd, signal.SIGUSR1)
            until = time.monotonic() + STACKS_S
            while os.fstat(each.log).st_size == before and time.monotonic() < until and not each.ended():
                poll([each.pidfd], 0.05)
            texts.append(self.last_words(rank))
        return "\n".join(texts)

    def close(self) -> None:
        for each in self.ranks.values():
            with contextlib.suppress(ProcessLookupError):
                # the rank is not reaped yet, so the number still belongs to it
                os.killpg(each.pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                while True:  # the rank, and what it forked, which this process has adopted
                    os.waitpid(-each.pid, 0)
            for fd in (each.commands, each.events, each.log, each.pidfd):
                os.close(fd)
        self.ranks.clear()
        for fd in (self.lifeline, self.held_lifeline, self.reserved):
            if fd >= 0:
                os.close(fd)
        self.lifeline = self.held_lifeline = self.reserved = -1


def rank_from_arguments() -> Rank:
    faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)
    return Rank(*json.loads(sys.argv[-1]))


def adopt_orphans() -> None:
    """Makes orphans of ranks children of this process, so that it can reap them."""
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)


def poll(fds: Collection[int], within_s: float) -> list[int]:
    poller = select.poll()
    for fd in fds:
        poller.register(fd, select.POLLIN)
    return [fd for fd, _ in poller.poll(max(0.0, within_s * 1000))]


def thread_state(pid: int, thread: int | str) -> str:
    try:
        with open(f"/proc/{pid}/task/{thread}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "ended"


def kernel_positions(pid: int) -> list[str]:
    found = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            words = []
            for name in ("comm", "wchan"):
                with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/{name}") as file:
                    words.append(file.read().strip())
            found.append(" in ".join(words))
    return found
