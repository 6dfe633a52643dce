"""The ranks of a pc.run() job on this host, for the launcher: their output and how each ends."""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import pickle
import selectors
import signal
import subprocess
import sys
import tempfile
import termios
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, Protocol

from pycollective._core import StoreServer
from pycollective.errors import CollectiveError
from pycollective.launching import child
from pycollective.launching.absent_ranks import TOGETHER_S, report_absent
from pycollective.launching.child import Child, guarded, key_files, notify_guard
from pycollective.launching.environment import World, rank_environment, with_debugger
from pycollective.launching.job import Job
from pycollective.launching.streams.line_cutter import LineCutter
from pycollective.launching.streams.lines import visible
from pycollective.launching.worker import Outcome
from pycollective.runtime import lifetime

DUMP_S = 1.0  # after the deadline: time in which ranks print their stacks before they are killed
# Sets sys.path first, so that the rank finds pycollective and the function as this process did.
BOOT = (
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); "
    "from pycollective.launching.worker import main; main()"
)
Show = Callable[[int, str, "list[str]"], None]  # called with rank, "out" or "err", and whole lines


class Terminal(Protocol):
    """A display that also shows unfinished lines."""

    def unfinished(self, rank: int, name: str, line: bytes) -> None:
        """Set the rank's unfinished line."""

    def due_s(self) -> float | None:
        """Return the seconds until redraw() is needed, or None if nothing has changed."""

    def redraw(self) -> None: ...


@contextlib.contextmanager
def started(
    job: Job,
    world: World,
    key: bytes | None,
    *,
    env: Mapping[str, str],
    show: Show,
    merged: bool = False,
    store: StoreServer | None = None,
    terminal: Terminal | None = None,
) -> Iterator[JobRanks]:
    """Start the ranks. At the end of the block, end all of them: no process is left behind.

    If `merged`, standard error is shown as "out", in the order in which it was written. `store` is
    the ranks' rendezvous store, if this process has it.
    """
    ranks = JobRanks(show, None if job.init else store, terminal)
    with guarded() as guard_fd:
        try:
            with tempfile.TemporaryFile() as file, key_files(key, len(world.ranks)) as key_fds:
                # Each rank opens the same file, with a file position of its own.
                pickle.dump(path_of_ranks(), file)
                pickle.dump(job, file)
                file.flush()
                for rank, key_fd in zip(world.ranks, key_fds, strict=True):
                    its_env = rank_environment(with_debugger(env), world, rank, key_fd)
                    each = start(rank, its_env, key_fd, file, merged)
                    notify_guard(guard_fd, "+", each.child)
                    ranks.add(each)
            yield ranks
        finally:
            ranks.end(guard_fd)


def path_of_ranks() -> list[str]:
    """Return sys.path, with each relative folder preceded by the folder's path in IMPORTED_IN."""
    found: list[str] = []
    for each in sys.path:
        if isinstance(each, str) and not os.path.isabs(each) and lifetime.IMPORTED_IN:
            found.append(os.path.join(lifetime.IMPORTED_IN, each))
        found.append(each)
    return found


def interpreter_options() -> list[str]:
    """Return the options of this Python that its ranks must also have, as in multiprocessing."""
    extended = [name if value is True else f"{name}={value}" for name, value in sys._xoptions.items()]
    optimized = ["-" + "O" * sys.flags.optimize] if sys.flags.optimize else []
    return [*optimized, *(f"-W{each}" for each in sys.warnoptions), *(f"-X{each}" for each in extended)]


def start(rank: int, env: Mapping[str, str], key_fd: int | None, job: IO[bytes], merged: bool) -> JobRank:
    with contextlib.ExitStack() as on_error:
        try:
            reply = on_error.enter_context(tempfile.TemporaryFile())
            stdin = on_error.enter_context(open(f"/proc/self/fd/{job.fileno()}", "rb"))
            with warnings.catch_warnings():
                # JAX warns about os.fork() in every process that has used JAX. The warning does not
                # apply here, because the child calls exec at once.
                warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
                rank_child = child.start(
                    [sys.executable, *interpreter_options(), "-c", BOOT, str(reply.fileno())],
                    rank=rank,
                    env=env,
                    key_fd=key_fd,
                    stdin=stdin,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT if merged else subprocess.PIPE,
                    pass_fds=[reply.fileno()],
                )
        except OSError as error:
            hint = child.descriptors_hint(error)
            raise CollectiveError(f"cannot start rank {rank}: {error.strerror}{hint}") from error
        on_error.pop_all()  # now JobRank closes `reply`
        stdin.close()
    return JobRank(rank_child, reply)


@dataclass
class JobRank:
    """One rank. It writes its outcome to an unnamed file, `reply`."""

    child: Child
    reply: IO[bytes]
    # as Child.exit_status(); None while the rank runs, or if it ran until end() killed it
    status: int | None = None
    outcome: Outcome | None = None  # None if the rank ended without writing one

    @property
    def rank(self) -> int:
        return self.child.rank

    @property
    def failed(self) -> bool:
        return self.status != 0 or self.outcome is None

    def read_outcome(self) -> None:
        self.reply.seek(0)
        with contextlib.suppress(Exception):  # the rank was killed before or while it wrote
            self.outcome = pickle.load(self.reply)


@dataclass(eq=False)
class Stream:
    """One output stream of a rank, split into lines."""

    rank: int
    name: str
    pipe: IO[bytes]
    cutter: LineCutter = field(default_factory=LineCutter)

    def waiting(self) -> int:
        """Return how many bytes can be read now."""
        return int.from_bytes(fcntl.ioctl(self.pipe, termios.FIONREAD, bytes(4)), sys.byteorder)

    def read(self) -> list[str] | None:
        """Return the lines that are complete now, or None at the end of the stream."""
        data = os.read(self.pipe.fileno(), max(1, self.waiting()))
        if not data:
            return None
        return lines_of(self.cutter.cut(data))

    def last(self) -> list[str]:
        """Return the rest: the lines that are unfinished or may still be redrawn."""
        return lines_of(self.cutter.last())


def lines_of(text: bytes) -> list[str]:
    lines = text.removesuffix(b"\n").split(b"\n") if text else []
    return [visible(line).decode(errors="replace") for line in lines]


@dataclass
class JobRanks:
    """All ranks on this host.

    Only the thread that started them may use this, because the ranks die with that thread.
    """

    show: Show
    # receives the reports of ended ranks, for which other ranks may wait in init()
    store: StoreServer | None = None
    terminal: Terminal | None = None
    # ranks that ended successfully and have not been reported to the other ranks
    done: list[Child] = field(default_factory=list)
    report_at: float = math.inf  # time of the next report
    drawing: set[Stream] = field(default_factory=set)  # streams with lines that the rank may still redraw
    ranks: list[JobRank] = field(default_factory=list)
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)

    def add(self, rank: JobRank) -> None:
        self.ranks.append(rank)
        process = rank.child.process
        for name, pipe in (("out", process.stdout), ("err", process.stderr)):
            if pipe is not None:
                self.selector.register(pipe, selectors.EVENT_READ, Stream(rank.rank, name, pipe))
        self.selector.register(os.pidfd_open(process.pid), selectors.EVENT_READ, rank)

    @property
    def running(self) -> list[JobRank]:
        return [key.data for key in self.selector.get_map().values() if isinstance(key.data, JobRank)]

    @property
    def streams(self) -> list[Stream]:
        return [key.data for key in self.selector.get_map().values() if isinstance(key.data, Stream)]

    def next_end(self, deadline: float) -> JobRank | None:
        """Show the ranks' output until a rank ends, and return that rank.

        Returns None if no rank runs or the deadline has passed.
        """
        while self.running and (left := deadline - time.monotonic()) > 0:
            dues = [stream.cutter.due_s() for stream in self.drawing]
            dues += [None if self.terminal is None else self.terminal.due_s()]
            patience = min(left, self.report_at - time.monotonic(), *(due for due in dues if due is not None))
            patience = max(patience, 0.0)
            for key, _ in self.selector.select(None if patience == math.inf else patience):
                if isinstance(key.data, JobRank):
                    self.ended(key)
                    return key.data
                self.read(key.data)
            for stream in list(self.drawing):
                self.show_lines(stream, lines_of(stream.cutter.let_go()))
            if self.terminal is not None and self.terminal.due_s() == 0:
                self.terminal.redraw()
            if time.monotonic() >= self.report_at:
                self.report_absent()
        return None

    def ended(self, key: selectors.SelectorKey) -> None:
        rank: JobRank = key.data
        self.selector.unregister(key.fd)
        os.close(key.fd)
        rank.status = rank.child.exit_status()
        rank.read_outcome()
        for stream in self.streams:
            if stream.rank == rank.rank and stream.waiting():
                self.read(stream)  # all output must be shown before the rank's end is judged
        if not rank.failed:
            self.done.append(rank.child)
            self.report_at = min(self.report_at, time.monotonic() + TOGETHER_S)

    def report_absent(self) -> None:
        """Report the ranks in `done`, because other ranks may wait for them in init().

        Reports are delayed because ranks mostly end together, and then none is needed.
        """
        done, self.done, self.report_at = self.done, [], math.inf
        if self.store is not None and self.running:
            # The report is made in a thread, because the store may take long to answer, and the
            # ranks' output must be read meanwhile.
            report = self.store._report_absent
            threading.Thread(target=report_absent, args=(done, report), daemon=True).start()

    def read(self, stream: Stream) -> None:
        lines = stream.read()
        if lines is None:
            self.selector.unregister(stream.pipe)
            stream.pipe.close()
            lines = stream.last()
        if lines and self.drawing:
            for other in self.drawing - {stream}:
                # output in one stream means that the rank has finished drawing in the other one
                if other.rank == stream.rank:
                    self.show_lines(other, lines_of(other.cutter.give_way()))
        self.show_lines(stream, lines)

    def show_lines(self, stream: Stream, lines: list[str]) -> None:
        """Show whole lines, and update the stream's unfinished lines below them."""
        if stream.cutter.due_s() is None:
            self.drawing.discard(stream)
        else:
            self.drawing.add(stream)
        if self.terminal is not None:
            self.terminal.unfinished(stream.rank, stream.name, stream.cutter.unfinished())
        if lines:
            self.show(stream.rank, stream.name, lines)

    def stop(self, number: signal.Signals, grace_s: float) -> list[JobRank]:
        """Signal the running ranks, and return those that end within the grace period.

        The remaining ranks are killed at the end of started().
        """
        for each in self.running:
            each.child.signal(number)
        deadline = time.monotonic() + grace_s
        return list(iter(lambda: self.next_end(deadline), None))

    def end(self, guard_fd: int) -> None:
        """Kill all ranks and all processes that they started."""
        with contextlib.ExitStack() as always:  # runs all callbacks even if Ctrl-C arrives here
            always.callback(self.close)
            for each in self.ranks:
                if each.status is None:
                    each.status = each.child.exit_status()
                always.callback(notify_guard, guard_fd, "-", each.child)
                always.callback(each.child.reap)

    def close(self) -> None:
        """Read and show the remaining output.

        This does not wait for processes that have left their rank's process group and hold the
        pipes.
        """
        with contextlib.ExitStack() as always:  # runs all callbacks even if showing the output fails
            always.callback(self.selector.close)
            for key in list(self.selector.get_map().values()):
                if isinstance(key.data, JobRank):
                    always.callback(os.close, key.fd)
                else:
                    always.enter_context(key.data.pipe)
            for each in self.ranks:
                always.enter_context(each.reply)
                each.read_outcome()
            for stream in self.streams:
                if stream.waiting():
                    self.read(stream)
                if self.terminal is not None:
                    self.terminal.unfinished(stream.rank, stream.name, b"")
                if last := stream.last():
                    self.show(stream.rank, stream.name, last)
