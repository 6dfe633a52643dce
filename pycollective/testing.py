"""Worlds of processes inside a test: `results = pycollective.testing.run(function, 4)`.

    def total() -> float:
        x = np.full(3, pc.rank() + 1.0)
        return float(pc.allreduce(x)[0])

    def test_total():
        assert pycollective.testing.run(total, 4) == [10.0] * 4

The function, its arguments and its results travel as pickles between a process and its own children. So the function
must be importable: defined at the top level of a module (a test module or a script will do), no lambda or local one.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import selectors
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, TypeVar

from pycollective.errors import InvalidArgument
from pycollective.launching import child
from pycollective.launching.child import Child, key_files
from pycollective.launching.environment import World, free_port, rank_environment
from pycollective.launching.key import new_key
from pycollective.launching.local_store import open_store_of_run
from pycollective.launching.verdict import signal_name
from pycollective.launching.worker import MAIN, Job, Outcome, resolve

__all__ = ["RankError", "WorldFailed", "run"]

T = TypeVar("T")
DUMP_S = 1.0  # how long after the deadline the ranks have to print where they are
SHOWN_LINES = 60
# sys.path comes first, so that the rank finds pycollective and the function where we found them.
BOOT = (
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); "
    "from pycollective.launching.worker import main; main()"
)


@dataclass(frozen=True)
class RankError:
    """How one rank failed."""

    rank: int
    summary: str  # "ValueError: boom", "killed by SIGKILL", "still running after 60 s"
    details: str  # its traceback, or what it wrote to standard error
    exception: BaseException | None  # the exception itself, if it could be pickled


class WorldFailed(Exception):
    """At least one rank raised, died or was late. `errors` and `results` are keyed by rank."""

    def __init__(self, errors: dict[int, RankError], results: dict[int, Any], size: int) -> None:
        self.errors = errors
        self.results = results
        lines = [f"{len(errors)} of {size} ranks failed"]
        for rank, error in sorted(errors.items()):
            lines += [f"-- rank {rank}: {error.summary}", error.details.rstrip()]
        super().__init__("\n".join(lines))


def run(
    function: Callable[..., T],
    n: int,
    *args: object,
    timeout_s: float = 60,
    init: bool = True,
    env: Mapping[str, str] | None = None,
) -> list[T]:
    """Calls `function(*args)` on n ranks, each a fresh process, and returns their results in rank order.

    Each rank calls `pycollective.init()` before and `shutdown()` after, unless `init` is False. What ranks print comes
    out here when they have ended, with the rank in front. Raises WorldFailed, with every rank's exception and
    traceback, if any rank fails; ranks that are late by `timeout_s` first print the stacks of all their threads. No
    process is left behind.
    """
    if n < 1:
        raise InvalidArgument(f"testing.run(n={n}): a world has at least one rank")
    job = pickle.dumps(sys.path) + pickle.dumps(describe(function, args, timeout_s, init))
    key = new_key()
    deadline = time.monotonic() + timeout_s + DUMP_S
    ranks: list[Running] = []
    with open_store_of_run(key) as store, key_files(key, n) as key_fds:
        world = World(size=n, store=store.addresses[0], master_port=free_port())
        try:
            for rank, key_fd in enumerate(key_fds):
                ranks.append(start(rank, {**os.environ, **(env or {})}, world, key_fd, job))
            wait_for_all(ranks, deadline)
        finally:
            for each in ranks:
                each.end()
    # Only now, when no process is left: reading a rank's objects runs code that is not ours.
    errors: dict[int, RankError] = {}
    results: dict[int, Any] = {}
    for each in ranks:
        each.read()
        each.show()
        try:
            if each.outcome and each.outcome.returned:
                results[each.rank] = pickle.loads(each.outcome.result)
        except Exception as error:
            summary = f"its result cannot be unpickled here: {error!r}"
            errors[each.rank] = RankError(
                each.rank, summary, "".join(traceback.format_exception(error)), None
            )
        if (failed := each.error(timeout_s)) is not None:
            errors[each.rank] = failed
    if errors:
        raise WorldFailed(errors, results, n)
    return [results[rank] for rank in range(n)]


def describe(function: Callable[..., Any], args: tuple[object, ...], timeout_s: float, init: bool) -> Job:
    name = getattr(function, "__qualname__", "")
    module = getattr(function, "__module__", None)
    if not name or "<" in name or module is None:
        raise InvalidArgument(
            f"{function!r} cannot be imported by another process: define it at the top level of a module"
        )
    try:
        found = resolve(sys.modules.get(module), name)
    except AttributeError:
        found = None
    if found is not function:  # as pickle does: the name alone would silently run something else
        raise InvalidArgument(
            f"{function!r} cannot be imported by another process: there {module}.{name} is {found!r}. "
            "Define a function under a name of its own at the top level of a module"
        )
    script = None
    if module == "__main__":
        script = getattr(sys.modules["__main__"], "__file__", None)
        if script is None:
            raise InvalidArgument(
                f"{name} was typed in by hand; another process cannot import it. Put it into a file"
            )
        sys.modules[MAIN] = sys.modules["__main__"]  # so that what is defined there can come back
    return Job(module, script and os.path.abspath(script), name, pickle.dumps(args), timeout_s, init)


@dataclass
class Running:
    """One rank and the files in which it leaves its result and what it prints. They have no names."""

    child: Child
    reply: IO[bytes]
    printed: IO[bytes]
    status: int | None = None  # None: still running at the deadline
    outcome: Outcome | None = None  # None: it ended without leaving one
    lines: Sequence[str] = ()  # what it printed

    @property
    def rank(self) -> int:
        return self.child.rank

    def end(self) -> None:
        self.status = self.child.exit_status()
        self.child.reap()

    def read(self) -> None:
        with self.reply, self.printed:
            self.reply.seek(0)
            self.printed.seek(0)
            self.lines = self.printed.read().decode(errors="replace").splitlines()
            with contextlib.suppress(Exception):  # it was killed before or while it wrote
                self.outcome = pickle.load(self.reply)

    def show(self) -> None:
        for line in self.lines:
            print(f"[{self.rank}] {line}")

    def error(self, timeout_s: float) -> RankError | None:
        outcome, last_words = self.outcome, "\n".join(self.lines[-SHOWN_LINES:])
        if self.status is None:
            return RankError(self.rank, f"still running after {timeout_s:g} s", last_words, None)
        if outcome is not None and outcome.error is not None:
            exception: BaseException | None = None
            with contextlib.suppress(Exception):  # the summary and the traceback say it all the same
                exception = pickle.loads(outcome.exception) if outcome.exception else None
            return RankError(self.rank, outcome.error, outcome.traceback, exception)
        if self.status < 0:
            return RankError(self.rank, f"killed by {signal_name(-self.status)}", last_words, None)
        if self.status > 0 or outcome is None:
            return RankError(self.rank, f"ended with exit code {self.status}", last_words, None)
        return None


def start(rank: int, base: Mapping[str, str], world: World, key_fd: int, job: bytes) -> Running:
    with tempfile.TemporaryFile() as stdin, contextlib.ExitStack() as on_error:
        stdin.write(job)
        stdin.seek(0)
        reply = on_error.enter_context(tempfile.TemporaryFile())
        printed = on_error.enter_context(tempfile.TemporaryFile())
        rank_child = child.start(
            [sys.executable, "-c", BOOT, str(reply.fileno())],
            rank=rank,
            env=rank_environment(base, world, rank, key_fd),
            key_fd=key_fd,
            stdin=stdin,
            stdout=printed,
            stderr=printed,
            pass_fds=[reply.fileno()],
        )
        on_error.pop_all()  # from here on they are Running's
    return Running(rank_child, reply, printed)


def wait_for_all(ranks: list[Running], deadline: float) -> None:
    with selectors.DefaultSelector() as selector:
        try:
            for each in ranks:
                selector.register(os.pidfd_open(each.child.process.pid), selectors.EVENT_READ)
            while selector.get_map() and (ready := selector.select(max(0.0, deadline - time.monotonic()))):
                for key, _ in ready:
                    selector.unregister(key.fd)
                    os.close(key.fd)
        finally:
            for key in list(selector.get_map().values()):
                os.close(key.fd)
