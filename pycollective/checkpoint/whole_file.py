"""A file that is there whole or not at all, whenever the process or the machine dies.

It is written beside its place under another name, brought to the disk, and renamed. What a killed process has left
there, the next one that writes this file takes away.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterator
from typing import BinaryIO

from pycollective.errors import InvalidArgument

__all__ = ["replacing"]

ENDING = "saving"  # of the temporary file: .last.ckpt.0123456789abcdef.saving


@contextlib.contextmanager
def replacing(path: str) -> Iterator[BinaryIO]:
    """A new file to write, which takes the place of `path` at the end of the block if nothing is raised in there."""
    path = os.path.realpath(path)  # what a link points to, and not the link
    mode = mode_of(path)
    folder, name = os.path.split(path)
    remove_leftovers(folder, name)
    temporary = os.path.join(folder, f".{name}.{os.urandom(8).hex()}.{ENDING}")
    try:
        with open(temporary, "xb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            yield file
            file.flush()
            os.fsync(file.fileno())
        rename(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError) and error.errno is not None and error.filename is None:
            error.filename = path  # a write that fails does not say where
        raise
    bring_to_disk(folder)


def mode_of(path: str) -> int | None:
    """The permissions of the file that is there, or None: who must not read that one must not read the new one."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(mode):
        raise InvalidArgument(f"{path} is no regular file, so it cannot be replaced by one")
    return stat.S_IMODE(mode)


def remove_leftovers(folder: str, name: str) -> None:
    ours = re.compile(rf"\.{re.escape(name)}\.[0-9a-f]{{16}}\.{ENDING}")
    for found in os.listdir(folder):
        if ours.fullmatch(found):
            with contextlib.suppress(OSError):  # gone meanwhile, or that of another user
                os.unlink(os.path.join(folder, found))


def rename(temporary: str, path: str) -> None:
    try:
        os.replace(temporary, path)
    except FileNotFoundError as error:
        raise InvalidArgument(
            f"{path}: somebody else has begun to save to the same path, and has taken this one's temporary file away"
        ) from error


def bring_to_disk(folder: str) -> None:
    """The folder's entries: without it the rename may be forgotten when the machine fails."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:  # some network file systems have no such thing
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
