"""Encodes the store's values as bytes: a closed set of types. Decoding cannot run code.

    None            n
    True, False     t, f
    int             its decimal digits
    float           d, 8 bytes
    str             s, UTF-8
    bytes           b, the bytes
    list, tuple     l or u; for each item a length (u32) and the item
    dict            m; the same, with keys and values alternating
    array           a; length (u8) and text of the dtype, number (u8) and lengths (u64) of the
                    axes, the elements
    NumPy scalar    g; as an array

Lengths are little-endian. A counter is an int, and thus text, so that the store can add to it.
Objects that ranks send each other, which are larger and have more types, use another codec:
object_codec.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np

from pycollective.errors import InvalidArgument

__all__ = ["Value", "decode", "encode"]

# A value is None, bool, int, float, str, bytes, a NumPy array or scalar, or a list, tuple or dict
# of values.
Value: TypeAlias = Any

MOST_NESTED = 32
MOST_DIGITS = 4000  # decimal digits of an int; Python itself refuses to parse more than 4300
MOST_ITEM_NBYTES = 1 << 32
LENGTH = struct.Struct("<I")
DOUBLE = struct.Struct("<d")
ARRAY_KINDS = "biufc"


def encode(value: object, depth: int = 0) -> bytes:
    """Return the value as bytes.

    Raises:
        TypeError: the value has a type that cannot be stored.
        InvalidArgument: the value is nested too deeply or is too large.
    """
    if depth > MOST_NESTED:
        raise InvalidArgument(f"the value is nested more than {MOST_NESTED} deep, or holds itself")
    if value is None:
        return b"n"
    if isinstance(value, np.generic):  # checked first, because np.float64 is a subclass of float
        return b"g" + array(np.asarray(value))
    kind = type(value)
    if isinstance(value, bool):
        return b"t" if value else b"f"
    if isinstance(value, int) and kind is int:
        if value.bit_length() > 3 * MOST_DIGITS:
            raise InvalidArgument(f"an int of {value.bit_length()} bits is too large to be stored")
        return str(value).encode()
    if isinstance(value, float) and kind is float:
        return b"d" + DOUBLE.pack(value)
    if isinstance(value, str) and kind is str:
        return b"s" + value.encode("utf-8", "surrogatepass")
    if isinstance(value, (bytes, bytearray)):
        return b"b" + bytes(value)
    if isinstance(value, (list, tuple)) and kind in (list, tuple):
        return (b"l" if kind is list else b"u") + b"".join(item(each, depth) for each in value)
    if isinstance(value, dict) and kind is dict:
        return b"m" + b"".join(item(key, depth) + item(each, depth) for key, each in value.items())
    if isinstance(value, np.ndarray) and kind is np.ndarray:
        return b"a" + array(value)
    raise TypeError(
        f"a {kind.__name__} cannot be stored: None, bool, int, float, str, bytes, NumPy arrays and numbers, and lists, "
        f"tuples and dicts of these can"
    )


def item(value: Value, depth: int) -> bytes:
    data = encode(value, depth + 1)
    if len(data) >= MOST_ITEM_NBYTES:
        raise InvalidArgument(f"an item of {len(data)} bytes is too large to be stored")
    return LENGTH.pack(len(data)) + data


def array(x: np.ndarray[Any, Any]) -> bytes:
    if x.dtype.kind not in ARRAY_KINDS:
        raise TypeError(f"an array of {x.dtype} cannot be stored: numbers and bools can")
    name: bytes = x.dtype.str.encode()
    head = bytes([len(name)]) + name + bytes([x.ndim]) + struct.pack(f"<{x.ndim}Q", *x.shape)
    return head + x.tobytes()


def decode(data: bytes) -> Value:
    """Decode the result of encode(). Raises InvalidArgument for any other bytes."""
    try:
        return read(memoryview(data), 0)
    except (ValueError, IndexError, TypeError, SyntaxError, struct.error) as error:
        raise InvalidArgument(f"{len(data)} bytes that are no stored value: {error}") from None


def read(data: memoryview, depth: int) -> Value:
    if depth > MOST_NESTED:
        raise ValueError("nested too deeply")
    tag, rest = bytes(data[:1]), data[1:]
    if tag in (b"n", b"t", b"f"):
        if rest:
            raise ValueError("bytes behind the end")
        return {b"n": None, b"t": True, b"f": False}[tag]
    if tag == b"d":
        return float(DOUBLE.unpack(rest)[0])
    if tag == b"s":
        return bytes(rest).decode("utf-8", "surrogatepass")
    if tag == b"b":
        return bytes(rest)
    if tag == b"l":
        return [read(each, depth + 1) for each in items(rest)]
    if tag == b"u":
        return tuple(read(each, depth + 1) for each in items(rest))
    if tag == b"m":
        flat = [read(each, depth + 1) for each in items(rest)]
        return dict(zip(flat[::2], flat[1::2], strict=True))
    if tag == b"a":
        return read_array(rest)
    if tag == b"g":
        return read_array(rest)[()]
    text = bytes(data).decode("ascii")
    if str(int(text)) != text:
        raise ValueError("no number")
    return int(text)


def items(data: memoryview) -> Iterator[memoryview]:
    while data:
        (nbytes,) = LENGTH.unpack(data[: LENGTH.size])
        data = data[LENGTH.size :]
        if nbytes > len(data):
            raise ValueError("cut off")
        yield data[:nbytes]
        data = data[nbytes:]


def read_array(data: memoryview) -> np.ndarray[Any, Any]:
    end = 1 + data[0]
    dtype = np.dtype(bytes(data[1:end]).decode("ascii"))
    if dtype.kind not in ARRAY_KINDS:
        raise ValueError(f"an array of {dtype}")
    axes = data[end]
    shape = struct.unpack_from(f"<{axes}Q", data, end + 1)
    body = data[end + 1 + 8 * axes :]
    x: np.ndarray[Any, Any] = np.frombuffer(body, dtype).reshape(shape).copy()
    return x
