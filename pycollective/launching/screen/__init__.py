"""Shows the output of `pycollective run`'s ranks: whole lines, each prefixed with its rank."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection
from typing import TextIO

from pycollective.launching.failures.root_cause import is_consequence
from pycollective.launching.screen import tracebacks
from pycollective.launching.screen.live_line import INTERVAL_S, LiveLine
from pycollective.launching.screen.paddle_signal import without_block
from pycollective.launching.screen.tail import Tail
from pycollective.launching.screen.tracebacks import Ending, Tracebacks
from pycollective.launching.streams.line_cutter import LineCutter
from pycollective.launching.streams.lines import visible
from pycollective.launching.streams.output import Writer, writers

__all__ = ["Screen"]

COLOURS = (36, 33, 32, 35, 34, 96, 93, 92)


class Screen:
    """The launcher's standard output and error.

    It keeps the last lines that each rank has written to standard error.
    """

    def __init__(
        self,
        *,
        ranks: Collection[int],
        prefix: bool,
        on_closed: Callable[[], None],
        on_failed: Callable[[OSError], None],
        answered: int | None = None,
    ) -> None:
        self.ranks = ranks  # the ranks that have their output shown
        self.prefix = prefix
        self.on_closed = on_closed  # called once, when the process that reads the output has ended
        self.on_failed = on_failed  # called when writing fails for any other reason
        self.closed = False
        self.stopping = False  # whether the launcher has sent SIGTERM to the running ranks
        self.tails: dict[int, Tail] = defaultdict(Tail)
        self.tracebacks = Tracebacks()
        # By rank: the timer that releases held-back lines.
        self.release_at: dict[int, asyncio.TimerHandle] = {}
        self.cutters: dict[tuple[int, str], LineCutter] = {}  # by rank and stream
        streams: dict[str, TextIO] = {"out": sys.stdout, "err": sys.stderr}
        self.writers = writers({name: stream.fileno() for name, stream in streams.items()})
        self.waiting: set[asyncio.Task[None]] = set()  # writes that have not completed
        terminals = {name for name, stream in streams.items() if stream.isatty()}
        self.coloured = {name: name in terminals and "NO_COLOR" not in os.environ for name in streams}
        made: dict[Writer, LiveLine] = {}
        self.live = {
            name: made.setdefault(writer, LiveLine(writer.fd, answered))
            for name, writer in self.writers.items()
            if name in terminals
        }
        # by rank and stream: the lines that the rank may still change
        self.open: dict[tuple[int, str], bytes] = {}
        self.drawing: set[str] = set()  # streams that will be redrawn on their terminal soon

    @property
    def direct(self) -> bool:
        """Whether output passes unchanged.

        This is so if there is one rank and its lines have no prefix.
        """
        return not self.prefix and len(self.ranks) == 1

    def close(self) -> None:
        """Wait until everything is written. Nothing may be shown after this."""
        for writer in set(self.writers.values()):
            writer.close()

    def show(self, rank: int, name: str, text: bytes) -> Awaitable[None]:
        """Show text, preferably whole lines.

        The result completes when the text is written.
        """
        lines = text.removesuffix(b"\n").split(b"\n")
        if name == "err":
            self.tails[rank].add(lines)
        if rank not in self.ranks or self.direct:
            return done()
        if self.prefix:
            if name == "err":
                lines = self.but_for_errors(rank, lines)
            else:
                self.release_recent(rank)
                lines = without_block(lines) if self.stopping else lines
            return self.show_lines(rank, name, lines)
        return self.write(name, text)

    def pass_on(self, rank: int, name: str, data: bytes) -> Awaitable[None]:
        """Write data immediately and unchanged. Used if `direct`."""
        return self.write(name, data) if rank in self.ranks else done()

    def finish_other(self, rank: int, name: str) -> None:
        """Show what the rank has drawn in its other stream, before its lines in stream `name`."""
        other = "out" if name == "err" else "err"
        cutter = self.cutters.get((rank, other))
        if cutter is not None and (text := cutter.give_way()):
            self.unfinished(rank, other, cutter.unfinished())
            self.show(rank, other, text)

    def unfinished(self, rank: int, name: str, line: bytes) -> None:
        """Set the rank's unfinished lines, which it may still change.

        A terminal shows them after a short delay.
        """
        self.open[rank, name] = line
        self.update(rank, name)

    def update(self, rank: int, name: str) -> None:
        """Update the lines that a terminal shows at the bottom: unfinished and held-back ones."""
        live = self.live.get(name)
        if live is None or rank not in self.ranks or self.direct:
            return
        line = self.open.get((rank, name), b"")
        if name == "err" and rank in self.tracebacks.held:
            line = b""
        elif name == "err":
            line = b"\n".join([*self.tracebacks.recent.get(rank, ()), line])
        live.update(rank, name, self.label(rank, name) if self.prefix else b"", line)
        self.draw_soon(name)

    def draw(self, name: str) -> None:
        self.drawing.discard(name)
        # While output is waiting to be written, or a debugger uses the terminal, redraw later.
        if self.waiting or self.live[name].gives_way():
            self.draw_soon(name)
        else:
            self.redraw(name)

    def redraw(self, name: str) -> None:
        if text := self.live[name].redrawn():
            self.write_bytes(name, text)

    def draw_soon(self, name: str) -> None:
        if name not in self.drawing:
            self.drawing.add(name)
            asyncio.get_running_loop().call_later(INTERVAL_S, self.draw, name)

    def but_for_errors(self, rank: int, lines: list[bytes]) -> list[bytes]:
        held = rank in self.tracebacks.held
        lines = self.tracebacks.take(rank, lines)
        if not held and rank in self.tracebacks.held:
            asyncio.get_running_loop().call_later(tracebacks.HOLD_S, self.release, rank)
        if rank in self.tracebacks.recent and rank not in self.release_at:
            at = asyncio.get_running_loop().call_later(tracebacks.LINES_HOLD_S, self.release_recent, rank)
            self.release_at[rank] = at
        self.update(rank, "err")
        return lines

    def release_recent(self, rank: int) -> None:
        """Show held-back lines, because the rank has printed more or still runs."""
        if (at := self.release_at.pop(rank, None)) is not None:
            at.cancel()
            lines = self.tracebacks.release_recent(rank)
            self.update(rank, "err")
            self.show_lines(rank, "err", lines)

    def release(self, rank: int, held_s: float = 0.0) -> None:
        """Show the rank's held-back error, because the rank still runs or other ranks end late.

        An error that only reports another rank's end is held back longer, so that the root cause is
        shown first.
        """
        held_s += tracebacks.HOLD_S
        if held_s < tracebacks.VICTIM_HOLD_S and is_consequence(self.tracebacks.held.get(rank, [])):
            asyncio.get_running_loop().call_later(tracebacks.HOLD_S, self.release, rank, held_s)
            return
        lines = self.tracebacks.release(rank)
        if lines:
            self.show_lines(rank, "err", lines)
        elif self.tracebacks.unreported:
            asyncio.get_running_loop().call_later(INTERVAL_S, self.report_equal)

    def report_equal(self) -> None:
        lines = self.tracebacks.reported()
        if lines:
            self.write("err", b"".join(line + b"\n" for line in lines))

    def end(self, failed_first: int | None) -> Ending:
        """Return what to show when all ranks have ended.

        `failed_first` is the rank of the root cause.
        """
        return self.tracebacks.end(failed_first)

    def settle(self, *, whole: bool) -> None:
        """Erase the unfinished lines when all ranks have ended.

        If `whole`, held-back output is shown too, because no report will show it.
        """
        for rank in list(self.release_at) if whole else ():
            self.release_recent(rank)
        for name, live in self.live.items():
            live.open.clear()
            self.redraw(name)
        if whole and (lines := self.end(None).lines):
            self.write("err", b"".join(visible(line) + b"\n" for line in lines))

    def show_lines(self, rank: int, name: str, lines: list[bytes]) -> Awaitable[None]:
        if not lines:
            return done()
        label = self.label(rank, name)
        return self.write(name, b"".join(label + visible(line) + b"\n" for line in lines))

    def write(self, name: str, text: bytes) -> asyncio.Task[None]:
        live = self.live.get(name)
        if live is None or self.direct:
            return self.write_bytes(name, text)
        return self.write_bytes(name, live.around(text if text.endswith(b"\n") else text + b"\n"))

    def write_bytes(self, name: str, text: bytes) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(self.written(self.writers[name].write(text)))
        self.waiting.add(task)
        task.add_done_callback(self.waiting.discard)
        return task

    async def written(self, done: asyncio.Future[None]) -> None:
        try:
            await done
        except BrokenPipeError:
            if not self.closed:
                self.closed = True
                self.on_closed()
        except OSError as error:
            self.on_failed(error)

    def label(self, rank: int, name: str) -> bytes:
        if not self.coloured[name]:
            return b"[%d] " % rank
        return b"\x1b[%dm[%d]\x1b[0m " % (COLOURS[rank % len(COLOURS)], rank)


def done() -> asyncio.Future[None]:
    """Return a completed future."""
    future = asyncio.get_running_loop().create_future()
    future.set_result(None)
    return future
