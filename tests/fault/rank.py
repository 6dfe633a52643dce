"""What a rank of a supervised world can do: take commands, answer, and report how a call ended."""

from __future__ import annotations

import ctypes
import json
import os
import select
import time
from collections.abc import Callable
from typing import Any

import pycollective as pc

THREADS_END_S = 2.0  # a joined thread may remain in /proc a moment longer
FACTS = ("rank", "peer", "host", "pid", "cause", "operation", "sequence", "elapsed_s")


class Rank:
    def __init__(self, rank: int, size: int, address: str, commands: int, events: int, lifeline: int) -> None:
        self.rank, self.size, self.address = rank, size, address
        self.commands, self._events, self._lifeline = commands, events, lifeline
        self._unread = b""
        self._before = footprint()

    def join(self, timeout: float = 20) -> None:
        pc.init(self.address, rank=self.rank, size=self.size, timeout=timeout)

    def report(self, kind: str, **facts: Any) -> None:
        os.write(self._events, json.dumps([kind, time.monotonic(), facts]).encode() + b"\n")

    def next_command(self) -> Any:
        """Waits for the supervisor's next command and returns it."""
        while b"\n" not in self._unread:
            if not (more := os.read(self.commands, 65536)):
                os._exit(0)  # the supervisor is gone
            self._unread += more
        line, self._unread = self._unread.split(b"\n", 1)
        return json.loads(line)

    def has_command(self) -> bool:
        """Returns whether next_command() would return at once."""
        return b"\n" in self._unread or bool(select.select([self.commands], [], [], 0)[0])

    def fork_idler(self, *, behind_pythons_back: bool) -> int:
        """Forks a child that holds our descriptors until it is killed or the supervisor is gone."""
        child = ctypes.PyDLL(None).fork() if behind_pythons_back else os.fork()
        if child == 0:
            os.read(self._lifeline, 1)
            os._exit(0)
        return child

    def left_behind(self) -> list[str]:
        """Returns the descriptors, threads and children that were not there before init()."""
        fds, threads = self._before
        until = time.monotonic() + THREADS_END_S
        while len(footprint()[1] - threads) > 0 and time.monotonic() < until:
            os.sched_yield()
        now = footprint()
        found = [f"descriptor {fd}: {target}" for fd, target in now[0].items() if fds.get(fd) != target]
        found += [f"thread {name}" for name in sorted(now[1] - threads)]
        try:
            child, _ = os.waitpid(-1, os.WNOHANG)
            found.append(f"a child ({child})")
        except ChildProcessError:
            pass
        return found


def footprint() -> tuple[dict[str, str], set[str]]:
    """Returns the open descriptors with their targets, and the threads."""
    fds, threads = {}, set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            fds[fd] = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:  # the listing's own
            continue
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/comm") as comm:
                threads.add(f"{task} {comm.read().strip()}")
        except (FileNotFoundError, ProcessLookupError):
            continue
    return fds, threads


def attempt(call: Callable[[], Any]) -> dict[str, Any]:
    """Returns when the call began and ended, and the facts of what it raised."""
    began = time.monotonic()
    try:
        call()
    except BaseException as error:
        ended = time.monotonic()
        return {"began": began, "ended": ended, **facts_of(error)}
    return {"began": began, "ended": time.monotonic(), "raised": None}


def facts_of(error: BaseException) -> dict[str, Any]:
    facts = {name: getattr(error, name, None) for name in FACTS}
    return {"raised": type(error).__name__, "message": str(error), **facts}
