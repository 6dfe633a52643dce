"""The wire format of one object: a header of 256 bytes, then the body unless the header holds it.

bytes 0-3     "PCob"
4             format, 2
5             0: object_codec; 1: pickle, after a length (u16) and a text with the reason;
              2: no object, a text with the reason
6-7           0
8-15          length of the body, little-endian
16-255        the body, if it fits; else, in 16-23, its mark

A mark is eight random bytes. The dtype of the pieces of a body contains the mark. A dtype is sent
with each message and compared in each collective, so a piece left over from an earlier call is not
mistaken for a piece of this call.
"""

from __future__ import annotations

import enum
import os
import pickle
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from pycollective.errors import InvalidArgument
from pycollective.objects import object_codec
from pycollective.objects.object_codec import Bytes, Malformed

__all__ = [
    "HEADER_NBYTES",
    "Header",
    "Kind",
    "ObjectMessage",
    "Piece",
    "dtype_named",
    "dtype_of",
    "read_header",
    "pack",
    "read_pickle",
    "pieces",
    "printable",
    "refused",
]

HEADER = struct.Struct("<4sBBxxQ")
HEADER_NBYTES = 256
INLINE_NBYTES = HEADER_NBYTES - HEADER.size
# Size of a piece. A body is sent in pieces, so that a rank without memory for the body can still
# receive and drop it.
PIECE_NBYTES = 1 << 25
MAGIC = b"PCob"
FORMAT = 2
MARK_NBYTES = 8
NO_MARK = bytes(MARK_NBYTES)  # the mark if the header holds the body
REASON = struct.Struct("<H")
NAME_OF_DTYPE = re.compile(r"\[\('PCob ([0-9a-f]{16})', 'u1'\)\]")

# part of a body; its elements have the dtype dtype_of(mark)
Piece: TypeAlias = np.ndarray[Any, np.dtype[Any]]


class Kind(enum.IntEnum):
    """The encoding of the body."""

    TYPED = 0
    PICKLE = 1
    REFUSED = 2


@dataclass(frozen=True)
class ObjectMessage:
    """An encoded object. If `error` is set, encoding has failed, and `body` is the reason."""

    kind: Kind
    body: Bytes
    error: BaseException | None = None
    mark: bytes = NO_MARK

    def header(self) -> Bytes:
        """Returns the header, which is sent first."""
        x = np.zeros(HEADER_NBYTES, np.uint8)
        x[: HEADER.size] = np.frombuffer(HEADER.pack(MAGIC, FORMAT, self.kind, len(self.body)), np.uint8)
        inside = self.body if len(self.body) <= INLINE_NBYTES else np.frombuffer(self.mark, np.uint8)
        x[HEADER.size : HEADER.size + len(inside)] = inside
        return x

    def pieces(self) -> Iterator[Piece]:
        """Returns the messages after the header: none if the header holds the body."""
        return pieces(self.body, self.mark) if len(self.body) > INLINE_NBYTES else iter(())


def pieces(body: Bytes, mark: bytes) -> Iterator[Piece]:
    """Returns the pieces in which the body is sent."""
    elements = body.view(dtype_of(mark))
    return (elements[at : at + PIECE_NBYTES] for at in range(0, len(body), PIECE_NBYTES))


def dtype_of(mark: bytes) -> np.dtype[Any]:
    """Returns a one-byte dtype that contains the mark: a record with one named field.

    A view of bytes with this dtype needs no copy.
    """
    return np.dtype([(f"PCob {mark.hex()}", np.uint8)])


def dtype_named(name: str) -> np.dtype[Any] | None:
    """Parses the str() of the dtype of a body's piece. Returns None for any other dtype."""
    found = NAME_OF_DTYPE.fullmatch(name)
    return None if found is None else dtype_of(bytes.fromhex(found[1]))


def pack(obj: object, *, name: str, allow_pickle: bool, most_nbytes: int) -> ObjectMessage:
    """Encodes an object. Never raises: if the object cannot be sent, the result has the reason.

    `name` is the call's name, for the error on this rank.
    """
    try:
        return with_mark(Kind.TYPED, object_codec.encode(obj, most_nbytes=most_nbytes))
    except MemoryError as error:
        return refused(error, "it has no memory for the bytes")
    except InvalidArgument as error:
        reason = str(error)
    cause: Exception | None = None
    if allow_pickle:
        try:
            body = reason_prefix(reason) + pickle.dumps(obj, protocol=5)
            if len(body) <= most_nbytes:
                return with_mark(Kind.PICKLE, np.frombuffer(body, np.uint8))
            reason = f"the object takes {len(body)} bytes as a pickle, more than max_nbytes={most_nbytes}"
        except Exception as error:  # the object's own code may raise any exception
            reason, cause = f"{reason}; nor can it be pickled: {type(error).__name__}: {error}", error
    refusal = InvalidArgument(f"{name}: {reason}")
    refusal.__cause__ = cause
    return refused(refusal, reason)


def with_mark(kind: Kind, body: Bytes) -> ObjectMessage:
    """Returns a message. It has a new mark if the body does not fit into the header."""
    return ObjectMessage(kind, body, mark=os.urandom(MARK_NBYTES) if len(body) > INLINE_NBYTES else NO_MARK)


def reason_prefix(reason: str) -> bytes:
    text = reason.partition(", which cannot")[0].encode("utf-8", "backslashreplace")[:200]
    return REASON.pack(len(text)) + text


def refused(error: BaseException, reason: str) -> ObjectMessage:
    """Returns a message with the reason why there is no object."""
    text = reason.encode("utf-8", "backslashreplace")
    short = text if len(text) <= INLINE_NBYTES else text[: INLINE_NBYTES - 3] + b"..."
    return ObjectMessage(Kind.REFUSED, np.frombuffer(short, np.uint8), error)


@dataclass(frozen=True)
class Header:
    """A decoded header. `inline`: the body if the header holds it; else its pieces have `mark`."""

    kind: Kind
    nbytes: int
    inline: Bytes | None
    mark: bytes


def read_header(data: Bytes) -> Header:
    """Decodes a header. Raises Malformed if it is not valid."""
    magic, version, kind, nbytes = HEADER.unpack(data[: HEADER.size].tobytes())
    if magic != MAGIC or version != FORMAT or kind > Kind.REFUSED:
        raise Malformed(f"a message of {len(data)} bytes that is no object's header")
    inline = data[HEADER.size : HEADER.size + nbytes] if nbytes <= INLINE_NBYTES else None
    if kind == Kind.REFUSED and inline is None:
        raise Malformed("a reason that is longer than a header")
    return Header(Kind(kind), nbytes, inline, data[HEADER.size :][:MARK_NBYTES].tobytes())


def printable(text: bytes) -> str:
    """Returns a peer's text without control characters, which could change a terminal's state."""
    return "".join(each if each.isprintable() else "?" for each in text.decode("utf-8", "replace"))


def read_pickle(body: Bytes) -> tuple[str, Bytes]:
    """Returns the sender's reason for using pickle, and the pickle itself."""
    if len(body) < REASON.size:
        raise Malformed("a pickle that is cut off")
    (length,) = REASON.unpack(body[: REASON.size].tobytes())
    end = REASON.size + length
    return printable(body[REASON.size : end].tobytes()), body[end:]
