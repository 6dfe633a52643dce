"""Replaces a file atomically, even if the process or the machine dies.

The new file is written in the same folder under a temporary name, flushed to the disk, and renamed.
If a process is killed meanwhile, the next process that replaces this file removes the temporary
file.
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

ENDING = "saving"  # ends the name of a temporary file: .last.ckpt.0123456789abcdef.saving


@contextlib.contextmanager
def replacing(path: str) -> Iterator[BinaryIO]:
    """Open a new file that replaces `path` at the end of the block, unless the block raises."""
    path = os.path.realpath(path)  # if `path` is a symbolic link, its target is replaced
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
            error.filename = path  # the error of a failed write does not name the file
        raise
    bring_to_disk(folder)


def mode_of(path: str) -> int | None:
    """Return the permissions of the existing file, or None if there is none.

    The new file gets the same permissions, so that it has no more readers than the old one.
    """
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
            with contextlib.suppress(OSError):  # already removed, or owned by another user
                os.unlink(os.path.join(folder, found))


def rename(temporary: str, path: str) -> None:
    try:
        os.replace(temporary, path)
    except FileNotFoundError as error:
        raise InvalidArgument(
            f"{path}: another save to the same path has begun, and has removed this one's temporary file"
        ) from error


def bring_to_disk(folder: str) -> None:
    """Flush the folder's entries: otherwise the rename may be lost when the machine fails."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:  # some network file systems do not support this
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
