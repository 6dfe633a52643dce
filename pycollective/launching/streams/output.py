"""Where ranks' output goes in the end: descriptors that may be slow, full or closed, and log files."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import select
import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO


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
