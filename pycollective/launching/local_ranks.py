"""The ranks of one world on this machine, from their start until all have ended."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import IO, TypeAlias

from pycollective.launching import child
from pycollective.launching.absent_ranks import TOGETHER_S, report_absent
from pycollective.launching.child import Child, key_files, notify_guard
from pycollective.launching.environment import World, rank_environment
from pycollective.launching.failures import memory_cgroup
from pycollective.launching.failures.root_cause import SETTLE_S, Failure, ended_by_itself, judged
from pycollective.launching.options import Options
from pycollective.launching.screen import Screen
from pycollective.launching.screen.pump import pump

LAST_WORDS_S = 0.5  # after a rank has ended: time to read its output before its failure is judged
# After all ranks have ended: time to read the rest. Processes that have left their rank's process
# group may hold the pipes open.
DRAIN_S = 2.0

Logs: TypeAlias = Mapping[tuple[int, str], IO[bytes]]  # by rank and stream: "out", "err"


class LocalRanks:
    """The ranks that one launcher runs.

    Thread-safety: everything runs in the one thread of the event loop.
    """

    def __init__(
        self,
        options: Options,
        world: World,
        guard_fd: int,
        logs: Logs,
        report: Callable[[Sequence[int], str], None] | None = None,
    ) -> None:
        self.options = options
        self.world = world
        self.guard_fd = guard_fd
        self.logs = logs
        # Reports ended ranks to ranks that wait in init(). None if ranks may be on other machines
        # too.
        self.report = report
        # ranks that ended successfully and have not been reported to the other ranks
        self.done: list[Child] = []
        self.screen = Screen(
            ranks=options.shown,
            prefix=options.prefix,
            answered=options.stdin,
            on_closed=self.on_output_closed,
            on_failed=self.lose,
        )
        self.memory = memory_cgroup.read()  # counts before the first rank starts
        self.running: dict[int, Child] = {}
        self.ends: list[
            tuple[int, int]
        ] = []  # (rank, status) of ranks that failed before the launcher stopped the other ranks
        # (rank, status) of ranks that failed after the launcher had begun to stop ranks
        self.late_ends: list[tuple[int, int]] = []
        # Why output could not be written. The ranks are then stopped, so that no output is lost.
        self.lost: BaseException | None = None
        self.asked: list[signal.Signals] = []  # stop signals that the launcher has received, in order
        self.stopping = False
        self.loop = asyncio.get_running_loop()

    @property
    def failed(self) -> bool:
        """Whether ranks failed, and no signal or output error has stopped the launcher."""
        return bool(self.ends) and not self.asked and self.lost is None

    @property
    def failures(self) -> list[Failure]:
        """The failures in order; the first one that is not a consequence is the root cause.

        They are judged on each access, because a rank's output may arrive long after its end if the
        process that reads the launcher's output pauses.
        """
        failures = [self.judged(rank, status) for rank, status in self.ends]
        if all(each.consequence for each in failures):
            tails = self.screen.tails
            failures += [
                self.judged(rank, status)
                for rank, status in self.late_ends
                if ended_by_itself(status, tails[rank].judged)
            ]
        return failures

    def judged(self, rank: int, status: int) -> Failure:
        return judged(rank, status, self.screen.tails[rank].judged)

    async def run(self, key: bytes | None) -> None:
        """Run the ranks until all have ended.

        `key` is the key of the launcher's store; None if the launcher has no store.
        """
        children: list[Child] = []
        pumps: list[asyncio.Task[None]] = []
        try:
            with key_files(key, len(self.world.ranks)) as key_fds:
                for rank, key_fd in zip(self.world.ranks, key_fds, strict=True):
                    children.append(self.start(rank, key_fd))
            follows = [self.loop.create_task(self.follow(each, pumps)) for each in children]
            await asyncio.gather(*follows)
            for each in children:
                each.signal(signal.SIGKILL)  # processes that the ranks left behind would hold the pipes open
            await self.drain(pumps)
        finally:
            for each in children:
                each.reap()
                notify_guard(self.guard_fd, "-", each)

    async def drain(self, pumps: list[asyncio.Task[None]]) -> None:
        """Show the remaining output, however slowly it is read, unless a stop is requested."""
        pending = set(pumps)
        while pending:
            _, pending = await asyncio.wait(pumps, timeout=DRAIN_S)
            if self.asked or not self.screen.waiting:
                break
        for each in pending:
            each.cancel()  # the task then shows the rank's last, unfinished line
        await asyncio.gather(*pumps, return_exceptions=True)
        self.screen.settle(whole=bool(self.asked) or not (self.ends or self.late_ends))
        while waiting := self.screen.waiting:
            done, _ = await asyncio.wait(waiting, timeout=DRAIN_S)
            if self.asked and not done:
                break

    def start(self, rank: int, key_fd: int | None) -> Child:
        env = rank_environment(self.options.environment(os.environ), self.world, rank, key_fd)
        words = self.options.words(rank - self.world.first)
        pipe = subprocess.PIPE
        stdin = 0 if rank == self.options.stdin else subprocess.DEVNULL
        each = child.start(words, rank=rank, env=env, key_fd=key_fd, stdin=stdin, stdout=pipe, stderr=pipe)
        self.running[rank] = each
        notify_guard(self.guard_fd, "+", each)
        return each

    async def follow(self, each: Child, pumps: list[asyncio.Task[None]]) -> None:
        """Wait for a rank's end while its output is shown. If it failed, stop the other ranks."""
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
        if status == 0 and self.report is not None:
            self.done.append(each)
            self.loop.call_later(TOGETHER_S, self.report_absent)
        if status != 0 and self.stopping:
            self.late_ends.append((each.rank, status))
        elif status != 0:
            self.ends.append((each.rank, status))
            await asyncio.wait(tasks[1:], timeout=LAST_WORDS_S)
            if self.judged(each.rank, status).consequence and not self.asked:
                self.loop.call_later(SETTLE_S, self.stop)
            else:
                self.stop()

    def report_absent(self) -> None:
        """Report the ranks in `done`, because other ranks may wait for them in init().

        Reports are delayed because ranks mostly end together, and then none is needed.
        """
        done, self.done = self.done, []
        if done and self.running and not self.stopping and self.report is not None:
            self.loop.run_in_executor(None, report_absent, done, self.report)

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
        """Stop the running ranks: SIGTERM, then SIGKILL after the grace period."""
        if self.stopping:
            return
        self.stopping = True
        # If the launcher received a stop signal, the ranks have it too and may be saving their
        # work.
        if not self.asked:
            self.screen.stopping = True
            self.signal_running(signal.SIGTERM)
        self.loop.call_later(self.options.grace_s, self.signal_running, signal.SIGKILL)

    def signal_running(self, number: int) -> None:
        for each in self.running.values():
            each.signal(number)

    def asked_to_stop(self, number: signal.Signals) -> None:
        self.asked.append(number)
        self.signal_running(number if len(self.asked) == 1 else signal.SIGKILL)

    def on_output_closed(self) -> None:
        self.asked.append(signal.SIGPIPE)
        self.signal_running(signal.SIGTERM)
        self.stop()

    def pass_on(self, number: signal.Signals) -> None:
        # to the rank alone: its process group may have processes that the signal would kill
        for each in self.running.values():
            each.signal_alone(number)
