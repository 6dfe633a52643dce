"""What ranks print, on its way to the screen and to log files: whole lines, each with its rank in front."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import select
import sys
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, TextIO

TAIL_LINES = 40
READ_BYTES = 1 << 16
LONGEST_LINE = 1 << 20  # a longer one is shown in pieces
COLOURS = (36, 33, 32, 35, 34, 96, 93, 92)


def write_all(fd: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(fd, left) :]
        except BlockingIOError:  # somebody who shares it made it so; changing that back would break them
            select.select([], [fd], [])


class Writer:
    """Writes to one descriptor from its own thread: whoever reads it may pause, and signals must still be heard."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.jobs: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]] | None] = queue.SimpleQueue()
        self.thread: threading.Thread | None = None  # started at the first line, after the last fork

    def write(self, data: bytes) -> asyncio.Future[None]:
        """In the order of the calls. The future ends when all is written, or with the OSError that prevented it."""
        done = asyncio.get_running_loop().create_future()
        self.jobs.put((data, done))
        if self.thread is None:
            # A daemon: it may wait for a reader who never goes on, and that must not keep us from exiting.
            self.thread = threading.Thread(target=self.work, daemon=True)
            self.thread.start()
        return done

    def close(self) -> None:
        """Waits until all is written."""
        if self.thread is not None:
            self.jobs.put(None)
            self.thread.join()

    def work(self) -> None:
        failure: OSError | None = None
        while (job := self.jobs.get()) is not None:
            data, done = job
            try:
                if failure is None:
                    write_all(self.fd, data)
            except OSError as error:
                failure = error
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                done.get_loop().call_soon_threadsafe(finish, done, failure)


def finish(done: asyncio.Future[None], failure: OSError | None) -> None:
    if done.done():  # cancelled
        return
    if failure is None:
        done.set_result(None)
    else:
        done.set_exception(failure)


def writers(fds: Mapping[str, int]) -> dict[str, Writer]:
    """One for all that lead to the same place (`2>&1`), so that none writes into the middle of another's line."""
    places = {name: os.fstat(fd) for name, fd in fds.items()}
    made: dict[tuple[int, int], Writer] = {}
    return {
        name: made.setdefault((place.st_dev, place.st_ino), Writer(fds[name]))
        for name, place in places.items()
    }


def fill_standard_streams() -> None:
    """Puts /dev/null where our parent closed a stream: what we open next would take its number and pass for it."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number: this one
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115


class Screen:
    """The launcher's standard output and error. Remembers the last lines of each rank's standard error."""

    def __init__(
        self, *, prefix: bool, on_closed: Callable[[], None], on_failed: Callable[[OSError], None]
    ) -> None:
        self.prefix = prefix
        self.on_closed = on_closed  # called once, when nobody reads us any more
        self.on_failed = on_failed  # called when something cannot be written for any other reason
        self.closed = False
        self.tails: dict[int, deque[bytes]] = defaultdict(lambda: deque(maxlen=TAIL_LINES))
        streams: dict[str, TextIO] = {"out": sys.stdout, "err": sys.stderr}
        self.writers = writers({name: stream.fileno() for name, stream in streams.items()})
        self.waiting: set[asyncio.Task[None]] = set()  # what is not yet written
        self.coloured = {
            name: stream.isatty() and "NO_COLOR" not in os.environ for name, stream in streams.items()
        }

    def close(self) -> None:
        """Waits until all is written; nothing may be shown any more."""
        for writer in self.writers.values():
            writer.close()

    def show(self, rank: int, name: str, text: bytes) -> asyncio.Task[None]:
        """Hands the text, whole lines if possible, to the writer at once; the task ends when it is written."""
        lines = text.removesuffix(b"\n").split(b"\n")
        if name == "err":
            self.tails[rank].extend(lines)
        if self.prefix:
            label = self.label(rank, name)
            # A progress bar rewrites its line with "\r": what is left of it is what a terminal would show.
            text = b"".join(label + line.rstrip(b"\r").rpartition(b"\r")[2] + b"\n" for line in lines)
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


async def pump(pipe: IO[bytes], rank: int, name: str, screen: Screen, log: IO[bytes] | None) -> None:
    """Moves lines from a rank's pipe to the screen and to its log file until the pipe ends."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    rest = b""
    try:
        while data := await reader.read(READ_BYTES):
            if log:
                write_log(log, data)
            text = rest + data
            end = text.rfind(b"\n") + 1
            if len(text) - end > LONGEST_LINE:
                end = len(text)
            text, rest = text[:end], text[end:]
            if text:
                await screen.show(rank, name, text)
    finally:
        if rest:
            screen.show(rank, name, rest)
        transport.close()


def write_log(log: IO[bytes], data: bytes) -> None:
    try:
        write_all(log.fileno(), data)
    except OSError as error:
        error.filename = log.name
        raise


def open_logs(
    folder: Path | None, ranks: Iterable[int], files: contextlib.ExitStack
) -> dict[tuple[int, str], IO[bytes]]:
    """`rank0.out`, `rank0.err`, ...: all of them before the first rank is started, so that none writes in vain."""
    if folder is None:
        return {}
    folder.mkdir(parents=True, exist_ok=True)
    return {
        (rank, name): files.enter_context((folder / f"rank{rank}.{name}").open("wb", buffering=0))
        for rank in ranks
        for name in ("out", "err")
    }
