"""A KVS in a folder that all ranks can access: init("file:///shared/path", rank=, size=).

A card is valid only while a store listens at its address. This distinguishes runs that use the same
path. Rank 0 removes its card when all ranks have joined, and replaces a card that a dead run has
left. It refuses a path on which another run is still in its rendezvous. A rank that finds a card
without a listening store waits for the next card (bootstrap_info does that for every lasting KVS).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
import time
from collections.abc import Callable
from pathlib import Path

from pycollective.errors import CollectiveError, CollectiveTimeout, InvalidArgument

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.005, 0.2
LONGEST_TEXT = 4096


class FileKvs:
    """One file per key, mode 0600, because a process that can read it can join the world.

    `in_use` returns whether the run that wrote the given text is still in its rendezvous.
    """

    lasting = True

    def __init__(self, path: str, in_use: Callable[[str], bool]) -> None:
        self.name = f"the rendezvous file {path}"
        self.path = Path(path)
        self.in_use = in_use

    def publish(self, key: str, text: str, *, timeout_s: float) -> None:
        path = self.file(key)
        try:
            fresh = self.write_beside(path, text)
            try:
                self.clear_away(path, fresh)
                os.link(fresh, path)
            finally:
                os.unlink(fresh)
        except FileExistsError:
            raise self.taken(path) from None
        except CollectiveError:  # some are OSErrors too, which the next clause would handle
            raise
        except OSError as error:
            raise InvalidArgument(f"{self.name}: rank 0 cannot write {path}: {error.strerror}") from None

    def read(self, key: str, *, timeout_s: float) -> str:
        deadline, pause = time.monotonic() + timeout_s, FIRST_PAUSE_S
        path = self.file(key)
        while (text := self.content(path)) is None:
            if time.monotonic() > deadline:
                raise CollectiveTimeout(
                    f"rank 0 has not written {path} in {timeout_s:.3g} s. Is it the same path on the same file system "
                    f"for every rank, and does rank 0 run?"
                )
            time.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_S)
        return text

    def withdraw(self, key: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self.file(key))

    def file(self, key: str) -> Path:
        name = key.replace("/", ".")
        return self.path / name if self.path.is_dir() else Path(f"{self.path}.{name}")

    def write_beside(self, path: Path, text: str) -> Path:
        fresh = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(text.encode() + b"\n")  # the newline marks a complete text
            file.flush()
            os.fsync(fd)
        return fresh

    def clear_away(self, path: Path, fresh: Path) -> None:
        """Remove the file of an earlier run at `path`.

        A lock file ensures that only one process at a time removes it.
        """
        old = self.content(path)
        if old is None:
            return
        if self.in_use(old):
            raise self.taken(path)
        right = path.with_name(f".{path.name}.{hashlib.sha256(old.encode()).hexdigest()[:16]}")
        try:
            os.link(fresh, right)
        except FileExistsError:
            raise self.taken(path, f". If there is none, remove {right}") from None
        try:
            now = self.content(path)
            if now not in (None, old):  # another process is rank 0 too and has published its card meanwhile
                raise self.taken(path)
            if now == old:
                os.unlink(path)
        finally:
            os.unlink(right)

    def content(self, path: Path) -> str | None:
        """Return the text in the file, or None if the file is missing or incomplete.

        Raises InvalidArgument for a file that another user may have written.
        """
        with contextlib.suppress(OSError):  # opening the folder makes NFS revalidate whether the file exists
            os.close(os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InvalidArgument(
                f"{self.name}: cannot read {path}: {error.strerror}. Remove it, or choose another path"
            ) from None
        try:
            check(path, os.fstat(fd))
            text = os.read(fd, LONGEST_TEXT).decode(errors="replace")
        finally:
            os.close(fd)
        return text[:-1] if text.endswith("\n") else None

    def taken(self, path: Path, remedy: str = "") -> InvalidArgument:
        return InvalidArgument(
            f"{self.name}: another run is starting at {path} right now. Give each run a path of its own{remedy}"
        )


def check(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise InvalidArgument(f"{path} is not a regular file: remove it, or choose another path")
    if found.st_uid != os.geteuid():
        raise InvalidArgument(
            f"{path} belongs to user {found.st_uid} and not to us ({os.geteuid()}): it may tell anything. Choose a "
            f"path in a folder of your own"
        )
    if found.st_mode & 0o077:
        raise InvalidArgument(
            f"{path} can be read or written by others (mode {stat.S_IMODE(found.st_mode):04o}), and it holds the "
            f"job's key: remove it and start again"
        )
