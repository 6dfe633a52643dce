"""What travels for one object: a header of 256 bytes, which holds a small object whole, and else a body behind it.

bytes 0-3     "PCob"
4             format, 2
5             0: object_codec; 1: pickle, behind a length (u16) and a text that says why; 2: nothing, the text says why
6-7           0
8-15          length of the body, little-endian
16-255        the body, if it is no longer than that; else, in 16-23, its mark

A mark is eight random bytes. The pieces of a body say it in their dtype, which travels with each message and is
compared in each collective: so what an earlier call has left over is not taken for this one's.
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
PIECE_NBYTES = 1 << 25  # a body travels in pieces, so that who has no room for it can still let it pass
MAGIC = b"PCob"
FORMAT = 2
MARK_NBYTES = 8
NO_MARK = bytes(MARK_NBYTES)  # where the header holds the body
REASON = struct.Struct("<H")
NAME_OF_DTYPE = re.compile(r"\[\('PCob ([0-9a-f]{16})', 'u1'\)\]")

Piece: TypeAlias = np.ndarray[Any, np.dtype[Any]]  # of the elements of dtype_of()


class Kind(enum.IntEnum):
    """What the body is."""

    TYPED = 0
    PICKLE = 1
    REFUSED = 2


@dataclass(frozen=True)
class ObjectMessage:
    """An object, ready to go. `error`: why it cannot; then its header only tells the others so."""

    kind: Kind
    body: Bytes
    error: BaseException | None = None
    mark: bytes = NO_MARK

    def header(self) -> Bytes:
        """The first message."""
        x = np.zeros(HEADER_NBYTES, np.uint8)
        x[: HEADER.size] = np.frombuffer(HEADER.pack(MAGIC, FORMAT, self.kind, len(self.body)), np.uint8)
        inside = self.body if len(self.body) <= INLINE_NBYTES else np.frombuffer(self.mark, np.uint8)
        x[HEADER.size : HEADER.size + len(inside)] = inside
        return x

    def pieces(self) -> Iterator[Piece]:
        """The messages behind it: none if the header holds it all."""
        return pieces(self.body, self.mark) if len(self.body) > INLINE_NBYTES else iter(())


def pieces(body: Bytes, mark: bytes) -> Iterator[Piece]:
    """The body in the pieces in which it travels."""
    elements = body.view(dtype_of(mark))
    return (elements[at : at + PIECE_NBYTES] for at in range(0, len(body), PIECE_NBYTES))


def dtype_of(mark: bytes) -> np.dtype[Any]:
    """Bytes that say whose they are, without a copy: records of one field, which the mark names."""
    return np.dtype([(f"PCob {mark.hex()}", np.uint8)])


def dtype_named(name: str) -> np.dtype[Any] | None:
    """That of a piece, of whatever body, from its str(); None: it is none."""
    found = NAME_OF_DTYPE.fullmatch(name)
    return None if found is None else dtype_of(bytes.fromhex(found[1]))


def pack(obj: object, *, name: str, allow_pickle: bool, most_nbytes: int) -> ObjectMessage:
    """Never raises: what cannot be sent is a message that says so. `name` is the call's, for the error of this rank."""
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
        except Exception as error:  # whatever the object's own code raises
            reason, cause = f"{reason}; nor can it be pickled: {type(error).__name__}: {error}", error
    told = InvalidArgument(f"{name}: {reason}")
    told.__cause__ = cause
    return refused(told, reason)


def with_mark(kind: Kind, body: Bytes) -> ObjectMessage:
    """One with a mark of its own, if it needs one."""
    return ObjectMessage(kind, body, mark=os.urandom(MARK_NBYTES) if len(body) > INLINE_NBYTES else NO_MARK)


def reason_prefix(reason: str) -> bytes:
    text = reason.partition(", which cannot")[0].encode("utf-8", "backslashreplace")[:200]
    return REASON.pack(len(text)) + text


def refused(error: BaseException, reason: str) -> ObjectMessage:
    """One that only says why there is none."""
    text = reason.encode("utf-8", "backslashreplace")
    short = text if len(text) <= INLINE_NBYTES else text[: INLINE_NBYTES - 3] + b"..."
    return ObjectMessage(Kind.REFUSED, np.frombuffer(short, np.uint8), error)


@dataclass(frozen=True)
class Header:
    """What a header says. `inline`: the body, if it stands in there; else `mark` is that of its pieces."""

    kind: Kind
    nbytes: int
    inline: Bytes | None
    mark: bytes


def read_header(data: Bytes) -> Header:
    """Reads a header. Malformed: it is none of ours."""
    magic, version, kind, nbytes = HEADER.unpack(data[: HEADER.size].tobytes())
    if magic != MAGIC or version != FORMAT or kind > Kind.REFUSED:
        raise Malformed(f"a message of {len(data)} bytes that is no object's header")
    inline = data[HEADER.size : HEADER.size + nbytes] if nbytes <= INLINE_NBYTES else None
    if kind == Kind.REFUSED and inline is None:
        raise Malformed("a reason that is longer than a header")
    return Header(Kind(kind), nbytes, inline, data[HEADER.size :][:MARK_NBYTES].tobytes())


def printable(text: bytes) -> str:
    """A peer's words, without control characters that could draw on a terminal."""
    return "".join(each if each.isprintable() else "?" for each in text.decode("utf-8", "replace"))


def read_pickle(body: Bytes) -> tuple[str, Bytes]:
    """Why the sender could not do without pickle, in its words, and the pickle."""
    if len(body) < REASON.size:
        raise Malformed("a pickle that is cut off")
    (length,) = REASON.unpack(body[: REASON.size].tobytes())
    end = REASON.size + length
    return printable(body[REASON.size : end].tobytes()), body[end:]
