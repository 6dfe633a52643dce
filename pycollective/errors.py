"""Every error of pycollective, in one tree.

    CollectiveError (also a RuntimeError)
    ├── InvalidArgument (also a ValueError)   an argument is invalid; nothing was sent or changed
    ├── CollectiveMismatch                    the ranks made different calls
    ├── CollectiveTimeout (and TimeoutError)  a deadline passed; the message names the missing ranks
    ├── PeerFailure (also a ConnectionError)  a rank died or its connection broke
    │   ├── PeerExited                        it shut down while it was still needed
    │   ├── PeerUnresponsive (reserved)       it is connected, but does not answer
    │   └── PeerInterrupted                   it received Ctrl-C; the group remains usable
    ├── Excluded                              the other ranks consider this rank dead
    ├── Aborted                               another rank dropped or cancelled this call;
    │                                         the group remains usable
    ├── Unsupported                           valid, but this build or this path cannot do it
    ├── RemoteError                           a function failed on another rank; the message has
    │                                         the traceback
    ├── NotInitialized                        there is no world: init() was not called, or
    │                                         shutdown() was
    └── ForkedProcess                         a forked child uses connections of its parent

This version never raises PeerUnresponsive: a rank that does not answer causes CollectiveTimeout.
docs/errors.md describes which call raises which error, and what remains usable afterwards. Ctrl-C
raises KeyboardInterrupt. Calls with missing or unknown parameters raise TypeError, as in any Python
function. All of these exceptions can be pickled, with their attributes.
"""

from __future__ import annotations

__all__ = [
    "Aborted",
    "CollectiveError",
    "CollectiveMismatch",
    "CollectiveTimeout",
    "Excluded",
    "ForkedProcess",
    "InvalidArgument",
    "NotInitialized",
    "PeerExited",
    "PeerFailure",
    "PeerInterrupted",
    "PeerUnresponsive",
    "RemoteError",
    "Unsupported",
]


class CollectiveError(RuntimeError):
    """The base class, which is also raised itself, for operating system and internal errors.

    It is a RuntimeError, so that `except RuntimeError` in a torch.distributed program catches it.

    Attributes:
        rank: the rank that raises; None if it is not known.
        peer: the rank at the other end; None if no single rank is known.
        operation: the running operation, for example "allreduce #12 (ring, 64 MiB float32)";
            None if nothing had begun.
        elapsed_s: seconds since the start of that operation; None if nothing had begun.
        sequence: the number of that operation among the collectives of its group, from 1; None
            if it is not a collective.
    """

    rank: int | None
    peer: int | None
    operation: str | None
    elapsed_s: float | None
    sequence: int | None

    def __init__(
        self,
        message: str = "",
        *,
        rank: int | None = None,
        peer: int | None = None,
        operation: str | None = None,
        elapsed_s: float | None = None,
        sequence: int | None = None,
    ) -> None:
        super().__init__(message)
        self.rank = rank
        self.peer = peer
        self.operation = operation
        self.elapsed_s = elapsed_s
        self.sequence = sequence


class InvalidArgument(CollectiveError, ValueError):
    """An argument is invalid. Nothing was sent, and nothing has changed."""


class CollectiveMismatch(CollectiveError):
    """The ranks made different calls (collective, count, dtype, op or root).

    The message names them.
    """


class CollectiveTimeout(CollectiveError, TimeoutError):
    """A deadline passed. The message names the ranks that were missing, and the step."""


class PeerFailure(CollectiveError, ConnectionError):
    """A rank died or its connection broke. All ranks of the group raise it, now and in later calls.

    Attributes, besides those of CollectiveError:
        host: the host where `peer` ran; None if it is not known.
        pid: the process id of `peer` there; None if it is not known.
        cause: how the failure was detected, for example "its process ended".
    """

    host: str | None
    pid: int | None
    cause: str | None

    def __init__(
        self,
        message: str = "",
        *,
        rank: int | None = None,
        peer: int | None = None,
        operation: str | None = None,
        elapsed_s: float | None = None,
        sequence: int | None = None,
        host: str | None = None,
        pid: int | None = None,
        cause: str | None = None,
    ) -> None:
        super().__init__(
            message, rank=rank, peer=peer, operation=operation, elapsed_s=elapsed_s, sequence=sequence
        )
        self.host = host
        self.pid = pid
        self.cause = cause


class PeerExited(PeerFailure):
    """A rank shut down, or aborted this group, while it was still needed."""


class PeerUnresponsive(PeerFailure):
    """A rank is connected, but does not answer. Reserved: this version never raises it."""


class PeerInterrupted(PeerFailure):
    """Another rank received Ctrl-C in this call. The group remains usable."""


class Excluded(CollectiveError):
    """The other ranks consider this rank dead, and have continued or failed without it."""


class Aborted(CollectiveError):
    """Another rank dropped or cancelled this call, or lacked memory for it. The group stays usable.

    It is also raised after this rank aborted a process group of torch.distributed. That group has
    ended.
    """


class Unsupported(CollectiveError):
    """The call is valid, but this build or this path cannot do it."""


class RemoteError(CollectiveError):
    """A function failed on another rank, and its exception cannot be raised here as it is.

    Built-in exceptions and those of this module are raised with their own type and a RemoteError as
    their cause. The message has the exception's type, text and traceback; `peer` is the rank.
    """


class NotInitialized(CollectiveError):
    """There is no world: init() has not been called, or shutdown() has been called."""


class ForkedProcess(CollectiveError):
    """A forked child uses connections that belong to its parent."""
