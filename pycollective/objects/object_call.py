"""One call on objects: its limits, its deadline, and the handling of headers and bodies.

A body that is refused is received and dropped before the error is raised, so that the next call of
the group does not receive it.
"""

from __future__ import annotations

import operator
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from pycollective._core import Group
from pycollective.base.clock import Clock
from pycollective.errors import Aborted, CollectiveError, CollectiveMismatch, InvalidArgument, Unsupported
from pycollective.objects import object_codec, object_message
from pycollective.objects.object_codec import Bytes, Malformed
from pycollective.objects.object_message import (
    HEADER_NBYTES,
    PIECE_NBYTES,
    Header,
    Kind,
    ObjectMessage,
    Piece,
)
from pycollective.runtime.lifetime import check_timeout

__all__ = ["MAX_NBYTES", "Arrived", "Call", "Move"]

MAX_NBYTES = 1 << 30  # the limit of a call without max_nbytes

# an array call that sends the bytes that it is given, or receives into them
Move: TypeAlias = Callable[[Bytes | Piece], object]


class Call:
    """The arguments that all calls on objects have, checked."""

    def __init__(
        self, name: str, group: Group, allow_pickle: bool, max_nbytes: int | None, timeout: float | None
    ) -> None:
        if type(allow_pickle) is not bool:  # only True itself may enable pickle
            raise TypeError(
                f"{name}(): allow_pickle must be True or False, not {type(allow_pickle).__name__}"
            )
        self.name = name
        self.group = group
        self.allow_pickle = allow_pickle
        self.most_nbytes = MAX_NBYTES if max_nbytes is None else operator.index(max_nbytes)
        if self.most_nbytes < 0:
            raise InvalidArgument(f"{name}: max_nbytes must not be negative, not {max_nbytes}")
        self.left_nbytes = self.most_nbytes  # how many bytes the remaining bodies of this call may have
        check_timeout(timeout)
        self.clock = Clock(timeout)

    def rank_named(self, what: str, value: int) -> int:
        """Returns `value` as a rank of the group; `what` is the argument's name."""
        rank, last = operator.index(value), self.group.size - 1
        if not 0 <= rank <= last:
            raise InvalidArgument(f"{self.name}: {what} must be between 0 and {last}, not {rank}")
        return rank

    def error(self, kind: type[CollectiveError], what: str, peer: int) -> CollectiveError:
        """Returns an error that names the call and this rank."""
        return kind(
            f"{self.name} on rank {self.group.rank}: {what}",
            rank=self.group.rank,
            peer=peer,
            operation=self.name,
            elapsed_s=self.clock.elapsed_s(),
        )

    def pack(self, obj: object, suffix: str = "") -> ObjectMessage:
        """Returns the encoded object, or a message with the reason why it cannot be sent.

        `suffix` is appended to the call's name in errors.
        """
        return object_message.pack(
            obj, name=self.name + suffix, allow_pickle=self.allow_pickle, most_nbytes=self.most_nbytes
        )

    def send(self, message: ObjectMessage, move: Move) -> None:
        """Sends the header and then the body.

        If the object could not be encoded, sends only the header, with the reason, and raises the
        error.
        """
        move(message.header())
        if message.error is not None:
            raise message.error
        for piece in message.pieces():
            move(piece)

    def receive(self, sender: int, move: Move) -> Arrived:
        """Receives the header and the body that send() sends."""
        data = np.empty(HEADER_NBYTES, np.uint8)
        move(data)
        return self.body(sender, self.header(sender, data), move)

    def header(self, sender: int, data: Bytes) -> Header:
        """Decodes the header.

        Raises Aborted if `sender` could not encode its object, and CollectiveMismatch if `sender`
        uses another format.
        """
        try:
            header = object_message.read_header(data)
        except Malformed as error:
            raise self.error(CollectiveMismatch, f"rank {sender} sent {error}", sender) from None
        if header.kind == Kind.REFUSED:
            reason = object_message.printable(data[object_message.HEADER.size :][: header.nbytes].tobytes())
            what = f"rank {sender} had nothing to send: {reason}. The group goes on"
            raise self.error(Aborted, what, sender)
        return header

    def body(self, sender: int, header: Header, move: Move) -> Arrived:
        """Receives the body. Raises only errors of `move`.

        A body that exceeds the limit or the memory is dropped.
        """
        body: Bytes | None = None
        if header.nbytes <= self.left_nbytes:
            self.left_nbytes -= header.nbytes
            body = allocate(header.nbytes) if header.inline is None else header.inline
        if header.inline is None:
            for piece in discarded(header) if body is None else object_message.pieces(body, header.mark):
                move(piece)
        return Arrived(self, sender, header.kind, header.nbytes, body)


def allocate(nbytes: int) -> Bytes | None:
    """Returns memory for a body, or None if there is not enough.

    The kernel commits the memory page by page, as the bytes arrive.
    """
    try:
        return np.empty(nbytes, np.uint8)
    except MemoryError:
        return None


def discarded(header: Header) -> Iterator[Piece]:
    """Yields memory for each piece of a dropped body. All pieces use the same memory."""
    nbytes = header.nbytes
    scratch = np.empty(min(nbytes, PIECE_NBYTES), object_message.dtype_of(header.mark))
    return (scratch[: min(PIECE_NBYTES, nbytes - begin)] for begin in range(0, nbytes, PIECE_NBYTES))


@dataclass(frozen=True)
class Arrived:
    """A received object. `body` is None if it exceeded the limit or the memory, and was dropped."""

    call: Call
    sender: int
    kind: Kind
    nbytes: int
    body: Bytes | None

    def open(self) -> Any:  # noqa: ANN401
        """Decodes the object.

        Raises CollectiveMismatch if this rank does not accept the object, and Unsupported if a
        library is missing.
        """
        if self.body is None:
            limit = f"what is left of max_nbytes={self.call.most_nbytes}, or of the memory"
            raise self._refusal(f"an object of {self.nbytes} bytes, which is more than {limit}")
        try:
            if self.kind == Kind.PICKLE:
                return self._unpickled(*object_message.read_pickle(self.body))
            return object_codec.decode(self.body)
        except Malformed as error:
            raise self._refusal(f"{self.nbytes} bytes that are no object: {error}") from None
        except Unsupported as error:
            raise self.call.error(Unsupported, f"from rank {self.sender} {error}", self.sender) from error

    def _refusal(self, what: str) -> CollectiveError:
        what = f"rank {self.sender} sent {what}. The group goes on"
        return self.call.error(CollectiveMismatch, what, self.sender)

    def _unpickled(self, reason: str, data: Bytes) -> Any:  # noqa: ANN401
        if not self.call.allow_pickle:
            raise self._refusal(
                f"a pickle ({reason}), and this call does not say allow_pickle=True. A sender of pickles may run "
                "code here"
            )
        try:
            return pickle.loads(data.data)
        except Exception as error:  # the object's own code may raise any exception
            what = f"a pickle ({reason}) that cannot be read here: {type(error).__name__}: {error}"
            raise self._refusal(what) from error
