"""Sends an exception of one rank, to be raised on other ranks.

It is raised with its own type if that is safe, and else as a RemoteError.
"""

from __future__ import annotations

import builtins
import traceback
from typing import TypeAlias

from pycollective import errors
from pycollective.errors import CollectiveError, RemoteError
from pycollective.objects import object_codec

__all__ = ["ErrorRecord", "record_of", "reraised"]

MOST_NBYTES = 1 << 20  # most bytes that the arguments of an exception may take
ErrorRecord: TypeAlias = tuple[
    str, tuple[object, ...], str
]  # type, arguments, traceback: the object codec supports all of them


def record_of(error: BaseException) -> ErrorRecord:
    """Returns a record of the exception that can be sent to other ranks."""
    args: tuple[object, ...] = error.args  # not str(error), which adds quotes to the text of a KeyError
    if isinstance(error, OSError) and error.filename is not None:
        args = (error.errno, error.strerror, str(error.filename))
    try:
        object_codec.encode(args, most_nbytes=MOST_NBYTES)
    except Exception:  # an argument may have any type and raise any exception
        args = (str(error),)
    kind = type(error)
    name = (
        kind.__name__
        if kind.__module__ in ("builtins", errors.__name__)
        else f"{kind.__module__}.{kind.__qualname__}"
    )
    return name, args, "".join(traceback.format_exception(error))


def reraised(words: ErrorRecord, rank: int) -> Exception:
    """Returns the exception to raise on this rank for a failure on `rank`."""
    name, args, there = words
    kind = getattr(builtins, name, None) or getattr(errors, name, None)
    cause = RemoteError(f"on rank {rank}: {there.rstrip()}", peer=rank)
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        return cause
    try:
        error: Exception = kind(*args)
    except Exception:  # some types need other arguments; UnicodeDecodeError takes five
        return cause
    if isinstance(error, CollectiveError):
        error.peer = rank
    error.__cause__ = cause
    return error
