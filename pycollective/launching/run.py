"""`pycollective run`: starts n ranks of one program on this host, shows what they print, and ends them together."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pycollective.errors import CollectiveError
from pycollective.launching import child, guard
from pycollective.launching.child import Child, key_files
from pycollective.launching.environment import World, free_port, rank_environment
from pycollective.launching.key import new_key
from pycollective.launching.local_store import open_store_of_run
from pycollective.launching.output import Screen, fill_standard_streams, open_logs, pump, write_all
from pycollective.launching.verdict import Failure, culprit, is_consequence

LAST_WORDS_S = 0.5  # how long we read on after a rank's end before we judge it
SETTLE_S = 1.0  # how long a rank that only reports another rank's end leaves that rank to fail by itself
DRAIN_S = 2.0  # how long we read on when all ranks have ended, for what escaped may hold the pipes open
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
USER_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2)


@dataclass(frozen=True)
class Options:
    ranks: int
    command: list[str]
    log_dir: Path | None = None
    grace_s: float = 5.0
    prefix: bool = True


class Launch:
    """One running world. Everything happens in the one thread of its event loop."""

    def __init__(self, options: Options, guard_fd: int, logs: Mapping[tuple[int, str], IO[bytes]]) -> None:
        self.options = options
        self.guard_fd = guard_fd
        self.logs = logs
        self.screen = Screen(prefix=options.prefix, on_closed=self.nobody_reads, on_failed=self.lose)
        self.running: dict[int, Child] = {}
        self.failures: list[Failure] = []
        self.lost: BaseException | None = (
            None  # why output could not be written: the world ends rather than lose it
        )
        self.asked: list[signal.Signals] = []  # signals that ended us, in order
        self.stopping = False
        self.loop = asyncio.get_running_loop()

    async def run(self, world: World, key: bytes) -> None:
        children: list[Child] = []
        pumps: list[asyncio.Task[None]] = []
        try:
            with key_files(key, world.size) as key_fds:
                for rank, key_fd in enumerate(key_fds):
                    children.append(self.start(world, rank, key_fd))
            follows = [self.loop.create_task(self.follow(each, pumps)) for each in children]
            await asyncio.gather(*follows)
            for each in children:
                each.signal(signal.SIGKILL)  # what the ranks left behind would hold our pipes open
            await self.drain(pumps)
        finally:
            for each in children:
                each.reap()
                self.tell_guard("-", each)

    async def drain(self, pumps: list[asyncio.Task[None]]) -> None:
        """All that the ranks have printed is shown, however long our reader pauses, unless we are told to stop."""
        pending = set(pumps)
        while pending:
            _, pending = await asyncio.wait(pumps, timeout=DRAIN_S)
            if self.asked or not self.screen.waiting:
                break
        for each in pending:
            each.cancel()  # it then shows its last, unfinished line
        await asyncio.gather(*pumps, return_exceptions=True)
        while waiting := self.screen.waiting:
            done, _ = await asyncio.wait(waiting, timeout=DRAIN_S)
            if self.asked and not done:
                break

    def start(self, world: World, rank: int, key_fd: int) -> Child:
        env = rank_environment(os.environ, world, rank, key_fd)
        pipe = subprocess.PIPE
        each = child.start(self.options.command, rank=rank, env=env, key_fd=key_fd, stdout=pipe, stderr=pipe)
        self.running[rank] = each
        self.tell_guard("+", each)
        return each

    def tell_guard(self, sign: str, each: Child) -> None:
        with contextlib.suppress(BrokenPipeError):  # somebody killed it: we go on without
            os.write(self.guard_fd, b"%s%d\n" % (sign.encode(), each.group))

    async def follow(self, each: Child, pumps: list[asyncio.Task[None]]) -> None:
        """From a rank's start to its end, and what its end means for the others."""
        out, err = each.process.stdout, each.process.stderr
        assert out is not None
        assert err is not None
        tasks = [
            self.loop.create_task(pump(pipe, each.rank, name, self.screen, self.logs.get((each.rank, name))))
            for name, pipe in (("out", out), ("err", err))
        ]
        for task in tasks:
            task.add_done_callback(self.pumped)
        pumps += tasks
        status = await self.end_of(each)
        del self.running[each.rank]
        if status != 0 and not self.stopping:
            await asyncio.wait(tasks[1:], timeout=LAST_WORDS_S)
            failure = Failure(each.rank, status, is_consequence(self.screen.tails[each.rank]))
            self.failures.append(failure)
            if failure.consequence and not self.asked:
                self.loop.call_later(SETTLE_S, self.stop)
            else:
                self.stop()

    async def end_of(self, each: Child) -> int:
        ended = asyncio.Event()
        pidfd = os.pidfd_open(each.process.pid)
        self.loop.add_reader(pidfd, ended.set)
        try:
            await ended.wait()
        finally:
            self.loop.remove_reader(pidfd)
            os.close(pidfd)
        status = each.exit_status()
        assert status is not None
        return status

    def pumped(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.lose(error)

    def lose(self, error: BaseException) -> None:
        self.lost = self.lost or error
        self.stop()

    def stop(self) -> None:
        """Ends the other ranks: politely, then not."""
        if self.stopping:
            return
        self.stopping = True
        if not self.asked:  # else they were signalled already and may be saving their work
            self.signal_running(signal.SIGTERM)
        self.loop.call_later(self.options.grace_s, self.signal_running, signal.SIGKILL)

    def signal_running(self, number: int) -> None:
        for each in self.running.values():
            each.signal(number)

    def asked_to_stop(self, number: signal.Signals) -> None:
        self.asked.append(number)
        self.signal_running(number if len(self.asked) == 1 else signal.SIGKILL)

    def nobody_reads(self) -> None:
        self.asked.append(signal.SIGPIPE)
        self.signal_running(signal.SIGTERM)
        self.stop()

    def pass_on(self, number: signal.Signals) -> None:
        for each in self.running.values():  # to the rank alone: what it started would die of it
            each.signal_alone(number)

    def report(self) -> int:
        """Says what went wrong; returns the exit code."""
        if self.asked:
            return 128 + self.asked[0]
        if self.lost is not None:
            say(f"{cannot_write(self.lost)}; the ranks were stopped")
            return 1
        failure = culprit(self.failures)
        if failure is None:
            return 0
        where = f"; logs: {self.options.log_dir}" if self.options.log_dir else ""
        what = f"rank {failure.rank} failed first ({failure.cause}); the others were stopped{where}"
        last = self.screen.tails[failure.rank]
        more = "Its last lines:" if last else "It wrote nothing to stderr."
        say(f"{what}. {more}", before=b"\n", after=last)
        return failure.exit_code


def cannot_write(error: BaseException) -> str:
    if not isinstance(error, OSError):
        return f"cannot show what the ranks print: {error!r}"
    return f"cannot write {error.filename or 'what the ranks print'}: {error.strerror}{hint(error)}"


def cannot_start(program: str, error: OSError) -> int:
    """Says why; returns the exit code, for a bad program the shell's."""
    if error.filename != program:
        say(f"cannot start the ranks: {error.strerror}{hint(error)}")
        return 1
    say(f"cannot start {program}: {error.strerror}")
    return 127 if isinstance(error, FileNotFoundError) else 126


def hint(error: OSError) -> str:
    return "; raise the limit with `ulimit -n`" if error.errno == errno.EMFILE else ""


def say(what: str, *, before: bytes = b"", after: Iterable[bytes] = ()) -> None:
    lines = [os.fsencode(f"pycollective run: {what}"), *after]
    with contextlib.suppress(OSError):  # there is nowhere else to say it; the exit code tells as well
        write_all(sys.stderr.fileno(), before + b"".join(line + b"\n" for line in lines))


async def launch(
    options: Options, world: World, key: bytes, logs: Mapping[tuple[int, str], IO[bytes]]
) -> Launch:
    with guarded() as guard_fd:
        launched = Launch(options, guard_fd, logs)
        for number in filter(heard, STOP_SIGNALS):
            launched.loop.add_signal_handler(number, launched.asked_to_stop, number)
        for number in filter(heard, USER_SIGNALS):
            launched.loop.add_signal_handler(number, launched.pass_on, number)
        await launched.run(world, key)
    return launched


def heard(number: signal.Signals) -> bool:
    """False for what our parent had us ignore (nohup, a job in the background): the ranks inherit that from us."""
    return signal.getsignal(number) is not signal.SIG_IGN


@contextlib.contextmanager
def guarded() -> Iterator[int]:
    """A process that kills the groups written to it if we disappear."""
    command = [sys.executable, "-I", "-S", guard.__file__]
    null = subprocess.DEVNULL
    with subprocess.Popen(  # unbuffered: nothing is left to be flushed, and so to fail, when it is closed
        command, stdin=subprocess.PIPE, stdout=null, stderr=null, bufsize=0, start_new_session=True
    ) as process:
        assert process.stdin is not None
        yield process.stdin.fileno()


def run(options: Options) -> int:
    """Runs the world to its end; returns the exit code for the shell."""
    fill_standard_streams()
    with contextlib.ExitStack() as files:
        try:
            logs = open_logs(options.log_dir, options.ranks, files)
        except OSError as error:
            say(cannot_write(error))
            return 1
        key = new_key()
        try:
            store = files.enter_context(open_store_of_run(key))
            world = World(size=options.ranks, store=store.addresses[0], master_port=free_port())
            # The report comes after the loop and its signal handlers: Ctrl-C must end us if nobody reads it.
            return asyncio.run(launch(options, world, key, logs)).report()
        except KeyboardInterrupt:
            return 128 + signal.SIGINT
        except OSError as error:
            return cannot_start(options.command[0], error)
        except CollectiveError as error:  # no store
            say(f"cannot start the ranks: {error}")
            return 1
