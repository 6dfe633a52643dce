"""What ranks print, on its way to the screen and to log files: whole lines, each with its rank in front."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from typing import IO, BinaryIO, TextIO

TAIL_LINES = 40
READ_BYTES = 1 << 16
LONGEST_LINE = 1 << 20  # a longer one is shown in pieces
COLOURS = (36, 33, 32, 35, 34, 96, 93, 92)


class Screen:
    """The launcher's standard output and error. Remembers the last lines of each rank's standard error."""

    def __init__(self, *, prefix: bool, on_closed: Callable[[], None]) -> None:
        self.prefix = prefix
        self.on_closed = on_closed  # called once, when nobody reads us any more
        self.closed = False
        self.tails: dict[int, deque[bytes]] = defaultdict(lambda: deque(maxlen=TAIL_LINES))
        self.streams: dict[str, TextIO] = {"out": sys.stdout, "err": sys.stderr}
        self.coloured = {
            name: stream.isatty() and "NO_COLOR" not in os.environ for name, stream in self.streams.items()
        }

    def show(self, rank: int, name: str, lines: list[bytes]) -> None:
        if name == "err":
            self.tails[rank].extend(lines)
        if self.closed:
            return
        label = self.label(rank, name)
        try:
            stream = self.streams[name].buffer
            # A progress bar rewrites its line with "\r": what is left of it is what a terminal would show.
            stream.write(b"".join(label + line.rstrip(b"\r").rpartition(b"\r")[2] + b"\n" for line in lines))
            stream.flush()
        except BrokenPipeError:
            self.closed = True
            # Python flushes at exit and would complain; there is nobody to hear it.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.streams[name].fileno())
            self.on_closed()

    def label(self, rank: int, name: str) -> bytes:
        if not self.prefix:
            return b""
        if not self.coloured[name]:
            return b"[%d] " % rank
        return b"\x1b[%dm[%d]\x1b[0m " % (COLOURS[rank % len(COLOURS)], rank)


async def pump(pipe: IO[bytes], rank: int, name: str, screen: Screen, log_dir: Path | None) -> None:
    """Moves lines from a rank's pipe to the screen and to `rank<rank>.<name>` until the pipe ends."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    log: BinaryIO | None = (log_dir / f"rank{rank}.{name}").open("wb", buffering=0) if log_dir else None
    rest = b""
    try:
        while data := await reader.read(READ_BYTES):
            if log:
                log.write(data)
            *lines, rest = (rest + data).split(b"\n")
            if len(rest) > LONGEST_LINE:
                lines, rest = [*lines, rest], b""
            if lines:
                screen.show(rank, name, lines)
    finally:
        if rest:
            screen.show(rank, name, [rest])
        transport.close()
        if log:
            log.close()
