"""Every error of pycollective, in one tree.

    CollectiveError (also a RuntimeError)
    ├── InvalidArgument (also a ValueError)     an argument cannot be right; nothing was sent, everything is as before
    ├── CollectiveMismatch                      the ranks made different calls
    ├── CollectiveTimeout (also a TimeoutError) a deadline passed; the message says who was waited for
    ├── PeerFailure (also a ConnectionError)    a rank died or its connection broke
    │   ├── PeerExited                          it said goodbye and ended while it was still needed
    │   ├── PeerUnresponsive (reserved)         its connection stands, but it does not answer
    │   └── PeerInterrupted                     somebody pressed Ctrl-C there; the group can be used again
    ├── Excluded                                the others hold this rank for dead
    ├── Aborted                                 another rank dropped or cancelled this call; the group can be used again
    ├── Unsupported                             valid, but this build or this path cannot do it
    ├── RemoteError                             a function failed on another rank; the message has the traceback
    ├── NotInitialized                          there is no world: init() was not called, or shutdown() was
    └── ForkedProcess                           a forked child uses connections that belong to its parent

Reserved: this version never raises it; a rank that does not answer is named by CollectiveTimeout.
docs/errors.md says who raises what, and what can be used afterwards.
Ctrl-C raises KeyboardInterrupt. Calls with missing or unknown parameters raise TypeError, as in any Python function.
All of them can be pickled, with their attributes.
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
    """The root of the tree. Raised itself when the operating system refuses something, or for a fault of our own.

    It is a RuntimeError, so that `except RuntimeError` around a torch.distributed program catches it.

    Attributes:
        rank: the rank that raises; None if it is not known.
        peer: the rank at the other end; None if no single one is known.
        operation: what was running, for example "allreduce #12 (ring, 64 MiB float32)"; None if nothing had begun.
        elapsed_s: seconds from the start of that operation; None if nothing had begun.
        sequence: the number of that operation among the collectives of its group, from 1; None if it is none.
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
    """An argument cannot be right. Nothing was sent, everything is as before."""


class CollectiveMismatch(CollectiveError):
    """The ranks made different calls: another collective, count, dtype, op or root. The message says who differs."""


class CollectiveTimeout(CollectiveError, TimeoutError):
    """A deadline passed. The message says which rank was waited for, and in which step."""


class PeerFailure(CollectiveError, ConnectionError):
    """A rank died or its connection broke. Every rank of the group raises it, and every later call does so again.

    Attributes, besides those of CollectiveError:
        host: where `peer` ran; None if it is not known.
        pid: its process there; None if it is not known.
        cause: how it was noticed, for example "its process ended".
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
    """A rank said goodbye and ended, or aborted this group, while it was still needed."""


class PeerUnresponsive(PeerFailure):
    """A rank's connection stands, but it does not answer. Reserved: not raised yet."""


class PeerInterrupted(PeerFailure):
    """Somebody pressed Ctrl-C at another rank in this call. Unlike after other failures of peers, the group goes on."""


class Excluded(CollectiveError):
    """The others hold this rank for dead, and have gone on or failed without it."""


class Aborted(CollectiveError):
    """Another rank dropped or cancelled its part of this call, or had no memory for it: the group goes on.

    Or this rank aborted a process group of torch.distributed, which has ended.
    """


class Unsupported(CollectiveError):
    """The call is valid, but this build or this path cannot do it."""


class RemoteError(CollectiveError):
    """A function that another rank ran failed there, with an exception of a type that is not raised from afar.

    Built-in exceptions and those of this module are raised as what they are, with a RemoteError as their cause. The
    message has the exception's type, text and traceback; `peer` is the rank.
    """


class NotInitialized(CollectiveError):
    """There is no world: init() was not called yet, or shutdown() was."""


class ForkedProcess(CollectiveError):
    """A forked child uses connections that belong to its parent."""
