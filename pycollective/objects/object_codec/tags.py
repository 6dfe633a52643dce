"""Types that msgpack lacks: extensions for leaves, and tags as first elements of arrays."""

from __future__ import annotations

import datetime
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from msgpack import ExtType

__all__ = ["LEAVES", "MOST_NESTED", "PLAIN", "Tag", "large_int", "leaf_extension", "from_extension", "tag"]

MOST_NESTED: Final = 64  # maximum depth of containers
PLAIN = frozenset({type(None), bool, int, float, str, bytes})  # msgpack's own types
LEAVES = PLAIN | {complex, datetime.datetime, datetime.date, datetime.timedelta}

COMPLEX, INTEGER, DATETIME, DATE, TIMEDELTA = range(5)
COMPLEX_PARTS = struct.Struct("<dd")
DATETIME_PARTS = struct.Struct(
    "<HBBBBBI??q"
)  # ..., fold, whether the time has an offset from UTC, the offset in microseconds
DATE_PARTS = struct.Struct("<I")
TIMEDELTA_PARTS = struct.Struct("<iII")
MICROSECOND = datetime.timedelta(microseconds=1)


@dataclass(frozen=True, eq=False)
class Tag:
    """The first element of an array, which determines the type of the rest.

    No object of a user contains a Tag.
    """

    code: int


TAGS = {code: Tag(code) for code in range(16, 26)}
TUPLE, SET, FROZENSET, DICT, BYTEARRAY, ARRAY, SCALAR, TENSOR, PADDLE, GPU_TENSOR = TAGS.values()


def tag(which: Tag) -> ExtType:
    """Returns the encoded tag."""
    return _extension(which.code, b"")


def _extension(code: int, data: bytes) -> ExtType:
    from msgpack import ExtType

    return ExtType(code, data)


def large_int(value: object) -> ExtType:
    """Encodes an int of more than 64 bits. msgpack calls this for values that it does not support.

    A value of another type arrives here only if another thread changes the object meanwhile.
    """
    if type(value) is not int:
        raise TypeError(f"it changed meanwhile: a {type(value).__name__} was not there before")
    return _extension(INTEGER, value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))


def leaf_extension(value: object) -> ExtType | None:
    """Returns the extension for a leaf that msgpack lacks, or None if `value` is no such leaf.

    Raises ValueError with the reason if the leaf cannot be sent.
    """
    kind = type(value)
    if isinstance(value, complex) and kind is complex:
        return _extension(COMPLEX, COMPLEX_PARTS.pack(value.real, value.imag))
    if isinstance(value, datetime.datetime) and kind is datetime.datetime:
        return _extension(DATETIME, _datetime_parts(value))
    if isinstance(value, datetime.date) and kind is datetime.date:
        return _extension(DATE, DATE_PARTS.pack(value.toordinal()))
    if isinstance(value, datetime.timedelta) and kind is datetime.timedelta:
        return _extension(TIMEDELTA, TIMEDELTA_PARTS.pack(value.days, value.seconds, value.microseconds))
    return None


def _datetime_parts(value: datetime.datetime) -> bytes:
    offset = 0
    if value.tzinfo is not None:
        difference = value.tzinfo.utcoffset(None) if type(value.tzinfo) is datetime.timezone else None
        if difference is None or value.tzname() != datetime.timezone(difference).tzname(None):
            raise ValueError(
                "a datetime in a zone with rules or a name: send x.astimezone(datetime.timezone.utc)"
            )
        offset = difference // MICROSECOND
    date_and_time = (value.year, value.month, value.day, value.hour, value.minute, value.second)
    return DATETIME_PARTS.pack(
        *date_and_time, value.microsecond, bool(value.fold), value.tzinfo is not None, offset
    )


def _datetime(data: bytes) -> datetime.datetime:
    year, month, day, *clock, fold, is_aware, offset = DATETIME_PARTS.unpack(data)
    zone = datetime.timezone(offset * MICROSECOND) if is_aware else None
    return datetime.datetime.combine(
        datetime.date(year, month, day), datetime.time(*clock, fold=fold), tzinfo=zone
    )


UNPACK: dict[int, Callable[[bytes], Any]] = {
    COMPLEX: lambda data: complex(*COMPLEX_PARTS.unpack(data)),
    INTEGER: lambda data: int.from_bytes(data, "little", signed=True),
    DATETIME: _datetime,
    DATE: lambda data: datetime.date.fromordinal(*DATE_PARTS.unpack(data)),
    TIMEDELTA: lambda data: datetime.timedelta(*TIMEDELTA_PARTS.unpack(data)),
}


def from_extension(code: int, data: bytes) -> object:
    """Decodes an extension: a leaf or a Tag."""
    if code in TAGS and not data:
        return TAGS[code]
    if code not in UNPACK:
        raise ValueError(f"an extension {code} of {len(data)} bytes")
    return UNPACK[code](bytes(data))
