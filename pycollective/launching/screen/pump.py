"""From a rank's pipes to the screen and to its log files."""

from __future__ import annotations

import asyncio
from typing import IO

from pycollective.launching.lines import LineCutter
from pycollective.launching.output import write_log
from pycollective.launching.screen import Screen

READ_BYTES = 1 << 16


async def pump(pipe: IO[bytes], rank: int, name: str, screen: Screen, log: IO[bytes] | None) -> None:
    """Moves what the rank writes until the pipe ends: whole lines, and on a terminal what there is of the next."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    lines = LineCutter(raw=not screen.prefix)
    try:
        while data := await reader.read(READ_BYTES):
            if log:
                write_log(log, data)
            if screen.direct:
                await screen.pass_on(rank, name, data)
            text = lines.cut(data)
            screen.unfinished(rank, name, lines.unfinished())
            if text:
                await screen.show(rank, name, text)
    finally:
        screen.unfinished(rank, name, b"")
        if rest := lines.last():
            screen.show(rank, name, rest)
        transport.close()
