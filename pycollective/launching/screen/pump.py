"""Copies from a rank's pipes to the screen and to its log files."""

from __future__ import annotations

import asyncio
from typing import IO

from pycollective.launching.screen import Screen
from pycollective.launching.streams.line_cutter import LineCutter
from pycollective.launching.streams.output import write_log

READ_BYTES = 1 << 16


async def pump(pipe: IO[bytes], rank: int, name: str, screen: Screen, log: IO[bytes] | None) -> None:
    """Copy the rank's output until the pipe ends.

    Whole lines are copied. A terminal also shows the unfinished line.
    """
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    lines = screen.cutters[rank, name] = LineCutter(raw=not screen.prefix)
    try:
        while (data := await next_of(reader, lines.due_s())) != b"":
            if data and log:
                write_log(log, data)
            if data and screen.direct:
                await screen.pass_on(rank, name, data)
            text = lines.cut(data) if data else lines.let_go()
            screen.unfinished(rank, name, lines.unfinished())
            if text:
                screen.finish_other(rank, name)
                await screen.show(rank, name, text)
    finally:
        screen.unfinished(rank, name, b"")
        if rest := lines.last():
            screen.show(rank, name, rest)
        transport.close()


async def next_of(reader: asyncio.StreamReader, patience_s: float | None) -> bytes | None:
    """Return the next data, or None if none arrives within `patience_s`."""
    try:
        return await asyncio.wait_for(reader.read(READ_BYTES), patience_s)
    except asyncio.TimeoutError:
        return None
