"""Output of the ranks: descriptors that may be slow, full or closed, and log files."""

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
        # Another process has made the shared descriptor non-blocking. Wait here, because making it
        # blocking again could break that process.
        except BlockingIOError:
            select.select([], [fd], [])


class Writer:
    """Writes to one descriptor in a thread of its own.

    If the process that reads the output pauses, only that thread blocks, and signals are still
    handled.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.jobs: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]] | None] = queue.SimpleQueue()
        self.thread: threading.Thread | None = None  # started at the first write, which follows the last fork

    def write(self, data: bytes) -> asyncio.Future[None]:
        """Write in the order of calls.

        The future completes when all is written, or with the OSError.
        """
        done = asyncio.get_running_loop().create_future()
        self.jobs.put((data, done))
        if self.thread is None:
            # A daemon thread does not delay the exit. It may wait forever for the process that
            # reads the output.
            self.thread = threading.Thread(target=self.work, daemon=True)
            self.thread.start()
        return done

    def close(self) -> None:
        """Wait until everything is written."""
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
            with contextlib.suppress(RuntimeError):  # the loop is closed, so no task waits
                done.get_loop().call_soon_threadsafe(finish, done, failure)


def finish(done: asyncio.Future[None], failure: OSError | None) -> None:
    if done.done():  # the task that waited was cancelled
        return
    if failure is None:
        done.set_result(None)
    else:
        done.set_exception(failure)


def writers(fds: Mapping[str, int]) -> dict[str, Writer]:
    """Return a writer for each stream.

    Streams with the same target (`2>&1`) share one writer, so that lines are not mixed.
    """
    places = {name: os.fstat(fd) for name, fd in fds.items()}
    made: dict[tuple[int, int], Writer] = {}
    return {
        name: made.setdefault((place.st_dev, place.st_ino), Writer(fds[name]))
        for name, place in places.items()
    }


def fill_standard_streams() -> None:
    """Open /dev/null for closed standard streams, so that no later file gets their descriptor."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # open() returns the lowest free number, which is this one
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
    """Open `rank0.out`, `rank0.err`, and so on.

    This must happen before the first rank starts, so that an error is reported before ranks run.
    """
    if folder is None:
        return {}
    folder.mkdir(parents=True, exist_ok=True)
    return {
        (rank, name): files.enter_context((folder / f"rank{rank}.{name}").open("wb", buffering=0))
        for rank in ranks
        for name in ("out", "err")
    }
