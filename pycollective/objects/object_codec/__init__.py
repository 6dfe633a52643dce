"""Encodes objects to bytes and back, for broadcast_object() and similar calls.

The types are a closed set, and decoding cannot run code.

    bytes 0-7       length of the skeleton, little-endian
    skeleton        msgpack: None, bool, int, float, str, bytes, list and dict unchanged, other
                    leaves as extensions; types that msgpack lacks are an array that begins with
                    a tag: [TUPLE, ...], [DICT, key, value, ...]; ARRAY, TENSOR, GPU_TENSOR,
                    PADDLE are followed by dtype and shape, BYTEARRAY by its size, and each
                    of them has a block
    blocks          the bytes of arrays, tensors and bytearrays in the order of the skeleton, each
                    from a multiple of 16

Decoded arrays are views of the received bytes, so they are not copied, nor limited to msgpack's 4
GiB. Nothing is allocated based on claimed lengths: msgpack first skips through the skeleton, which
takes no memory and fails unless every element of a claimed length is present. The sizes of arrays
are compared with the remaining bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np

from pycollective.errors import InvalidArgument
from pycollective.objects.object_codec.arrays import Bytes
from pycollective.objects.object_codec.decoder import Decoder
from pycollective.objects.object_codec.encoder import Encoder, NotSendable
from pycollective.objects.object_codec.tags import MOST_NESTED, from_extension, large_int

__all__ = ["MOST_NESTED", "Bytes", "Malformed", "decode", "encode", "pieces"]

LENGTH = struct.Struct("<Q")
Placed: TypeAlias = list[tuple[int, Bytes]]  # each block, with its offset


class Malformed(ValueError):
    """The bytes do not encode an object."""


def encode(value: object, *, most_nbytes: int) -> Bytes:
    """Returns the bytes of `value`.

    Raises InvalidArgument if a part of it cannot be sent (the error has its position), or if it is
    too large.
    """
    placed, end = _placed(value, most_nbytes)
    if len(placed) == 1:
        return placed[0][1]
    data = np.zeros(end, np.uint8)
    for place, block in placed:
        data[place : place + len(block)] = block
    return data


def pieces(value: object, *, most_nbytes: int) -> Iterator[Bytes]:
    """Returns the bytes of encode() in pieces. Contiguous arrays are not copied.

    Errors are raised by this call, not by the iteration.
    """
    placed, _ = _placed(value, most_nbytes)
    return _with_gaps(placed)


def _with_gaps(placed: Placed) -> Iterator[Bytes]:
    end = 0
    for place, block in placed:
        yield np.zeros(place - end, np.uint8)
        yield block
        end = place + len(block)


def _placed(value: object, most_nbytes: int) -> tuple[Placed, int]:
    """Returns the head (length and skeleton) and the blocks, with offsets, and the total size."""
    from msgpack import Packer

    encoder = Encoder(most_nbytes)
    packer = Packer(strict_types=True, default=large_int, unicode_errors="surrogatepass", buf_size=4096)
    try:
        skeleton = packer.pack(encoder.encode(value, 0))
    except NotSendable as refused:
        raise InvalidArgument(str(refused)) from None
    except (
        TypeError,
        ValueError,
        OverflowError,
    ) as error:  # raised for 4 GiB of bytes, or if another thread changes the object
        raise InvalidArgument(f"the object cannot be sent: {error}") from error
    head = np.frombuffer(LENGTH.pack(len(skeleton)) + skeleton, np.uint8)
    placed, end = [(0, head)], len(head)
    for block in encoder.blocks:
        place = encoder.aligned(end)
        placed.append((place, block))
        end = place + len(block)
    if end > most_nbytes:
        raise InvalidArgument(f"the object takes {end} bytes, more than max_nbytes={most_nbytes}")
    return placed, end


def decode(data: Bytes) -> object:
    """Reverses encode(). Arrays are views of `data`, which must be writable and 16-byte aligned.

    Raises Malformed if the bytes encode no object, and Unsupported if the library of an array is
    missing.
    """
    from msgpack import UnpackException, unpackb

    try:
        (nbytes,) = LENGTH.unpack(data[: LENGTH.size].tobytes())
        end = LENGTH.size + nbytes
        if end > len(data):
            raise ValueError(f"{end} bytes at least, of which {len(data)} are there")
        skeleton = data[LENGTH.size : end].data
        _check_whole(skeleton)
        skeleton_value = unpackb(
            skeleton,
            ext_hook=from_extension,
            strict_map_key=False,
            unicode_errors="surrogatepass",
            timestamp=1,  # decode msgpack's timestamps, which encode() never writes, as harmless floats
        )
        decoder = Decoder(data, end)
        value = decoder.decode(skeleton_value, 0)
        decoder.check_end()
    except (ValueError, TypeError, OverflowError, RecursionError, struct.error, UnpackException) as error:
        raise Malformed(str(error) or type(error).__name__) from None
    return value


def _check_whole(skeleton: memoryview) -> None:
    """Raises an error unless all elements of the skeleton are present.

    Without this check, decoding would allocate nested lists of claimed lengths ([[[...) level by
    level, each as long as all the bytes.
    """
    from msgpack import Unpacker

    unpacker = Unpacker(max_buffer_size=len(skeleton))
    unpacker.feed(skeleton)
    unpacker.skip()
    if unpacker.tell() != len(skeleton):
        raise ValueError("bytes behind the skeleton's end")
