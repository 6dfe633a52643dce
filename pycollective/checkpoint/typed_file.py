"""The default format: a header of 32 bytes, and the state encoded by the object codec. No pickle.

bytes 0-7     89 "PCckpt" 0A
8-11          format, 1, little-endian like all fields below
12-15         CRC-32 of the body
16-23         length of the body
24-31         0
"""

from __future__ import annotations

import contextlib
import struct
import sys
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from io import BufferedReader
from typing import Any, BinaryIO

import numpy as np

from pycollective.arrays.libraries import by_name
from pycollective.errors import InvalidArgument
from pycollective.objects import object_codec
from pycollective.objects.object_codec import MOST_NESTED, Bytes, Malformed

__all__ = ["NO_LIMIT", "decoded", "encoded", "read", "write"]

MAGIC = b"\x89PCckpt\n"  # text files do not begin like this, and a conversion of line ends would change it
FORMAT = 1
HEADER = struct.Struct("<8sIIQ8x")
AT_ONCE = 1 << 20  # bytes per write
NO_LIMIT = 1 << 62  # bytes; only the available memory limits the size


def write(state: object, file: BinaryIO) -> None:
    """Write a checkpoint.

    Raises:
        InvalidArgument: something in `state` cannot be written; the message has its position.
    """
    with refused("checkpoint.save: the state cannot be written"):
        pieces = object_codec.pieces(plain(state), most_nbytes=NO_LIMIT)
    file.write(bytes(HEADER.size))  # a placeholder: the checksum is known only at the end
    checksum = nbytes = 0
    for piece in pieces:
        for begin in range(0, len(piece), AT_ONCE):
            # copied, so that the checksum covers exactly what is written
            part = piece[begin : begin + AT_ONCE].tobytes()
            file.write(part)
            checksum = zlib.crc32(part, checksum)
            nbytes += len(part)
    file.seek(0)
    file.write(HEADER.pack(MAGIC, FORMAT, checksum, nbytes))


def encoded(state: object, refusal: str) -> Bytes:
    """Return the state, encoded by the object codec. An InvalidArgument begins with `refusal`."""
    with refused(refusal):
        return object_codec.encode(plain(state), most_nbytes=NO_LIMIT)


@contextlib.contextmanager
def refused(refusal: str) -> Iterator[None]:
    """Prefix the codec's InvalidArgument with `refusal`."""
    try:
        yield
    except InvalidArgument as error:
        what = str(error).partition(", which cannot be sent")[0]
        raise InvalidArgument(
            f"{refusal}: {what}. Leave it out or turn it into what docs/objects.md lists; write= and read= take "
            "another format (docs/checkpoint.md)"
        ) from error


def decoded(body: Bytes) -> object:
    """Decode the result of encoded()."""
    try:
        return object_codec.decode(body)
    except Malformed as error:
        raise InvalidArgument(f"checkpoint.load: the file holds no state: {error}") from error


def read(file: BufferedReader) -> Bytes:
    """Return the body. Raises InvalidArgument if the file is no checkpoint or is incomplete."""
    header = file.read(HEADER.size)
    if len(header) < HEADER.size and MAGIC.startswith(header[: len(MAGIC)]):
        what = "ends within its header" if header else "is empty"
        raise InvalidArgument(
            f"checkpoint.load: {file.name} is cut short: the file {what}, as when it was copied only in part or the "
            "disk was full: load another one"
        )
    if not header.startswith(MAGIC):
        raise InvalidArgument(
            f"checkpoint.load: {file.name} is no checkpoint: it begins with {header[:8]!r}. If it was saved with "
            "write=, load it with read="
        )
    _, version, checksum, nbytes = HEADER.unpack(header)
    if version != FORMAT:
        raise InvalidArgument(
            f"checkpoint.load: {file.name} has format {version}, and this version reads {FORMAT}"
        )
    there = file.seek(0, 2) - HEADER.size
    if there != nbytes:  # checked before allocating memory for a length that may be wrong
        state = "cut short" if there < nbytes else "damaged"
        raise InvalidArgument(
            f"checkpoint.load: {file.name} is {state}: {there} bytes behind the header instead of {nbytes}"
        )
    file.seek(HEADER.size)
    body: Bytes = np.empty(nbytes, np.uint8)
    if file.readinto(body.data) != nbytes or zlib.crc32(body.data) != checksum:
        raise InvalidArgument(f"checkpoint.load: {file.name} is damaged: its checksum is wrong")
    return body


def plain(value: Any, depth: int = 0) -> Any:  # noqa: ANN401
    """Convert types of frameworks to types that the codec supports.

    OrderedDict becomes dict. Tensors and arrays become values in CPU memory without gradients.
    """
    kind = type(value)
    if depth > MOST_NESTED:
        return value  # the codec refuses the value, with an error that names its path
    if kind is dict or kind is OrderedDict:
        return {key: plain(each, depth + 1) for key, each in value.items()}
    if kind is list or kind is tuple:
        return kind(plain(each, depth + 1) for each in value)
    if getattr(value, "is_meta", False):
        return value  # the codec raises an error for it
    if hasattr(value, "detach") and hasattr(value, "cpu"):  # a tensor of torch or Paddle, or a parameter
        return value.detach().cpu()
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(value, jax.Array):
        by_name("jax").shape(value)  # raises for random keys
        return np.asarray(value)
    return value
