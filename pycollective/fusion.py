"""Lists, tuples and dicts of arrays as one call: arrays of one element type travel together, in cache-sized blocks.

Large ones travel alone: a message more costs them less than two copies.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from pycollective.arrays import Library, library_of
from pycollective.arrays.numbers import is_number
from pycollective.blocks import check_block, check_pairs
from pycollective.errors import CollectiveError, InvalidArgument
from pycollective.staging import Room

__all__ = ["ALONE_NBYTES", "BLOCK_NBYTES", "is_bundle", "move_bundle"]

ALONE_NBYTES = 1 << 20
BLOCK_NBYTES = 1 << 22


def is_bundle(x: Any) -> bool:
    """Whether `x` is a list, tuple or dict of arrays. A list of numbers is a vector."""
    if isinstance(x, dict):
        return True
    return isinstance(x, (list, tuple)) and not (len(x) > 0 and all(map(is_number, x)))


@dataclass
class _Member:
    path: str  # "x[2]['bias']"
    array: Any
    library: Library
    nbytes: int


def _members(function: str, path: str, x: Any) -> list[_Member]:
    """The arrays in `x`, dicts by sorted key."""
    found: list[_Member] = []
    if isinstance(x, dict):
        try:
            keys = sorted(x)
        except TypeError:
            raise InvalidArgument(
                f"{function}: the keys of {path} cannot be sorted, so their order is not defined"
            ) from None
        items = [(f"{path}[{key!r}]", x[key]) for key in keys]
    else:
        items = [(f"{path}[{i}]", member) for i, member in enumerate(x)]
    for name, member in items:
        if is_number(member):
            raise InvalidArgument(
                f"{function}: {name} is a number among arrays: pass numpy.array({member!r})"
            )
        if isinstance(member, (list, tuple, dict)):
            found += _members(function, name, member)
            continue
        try:
            library = library_of(member)
            nbytes = library.nbytes(member)
        except CollectiveError as error:
            error.args = (f"{function}: {name}: {error}",)
            raise
        found.append(_Member(name, member, library, nbytes))
    return found


def _calls(members: list[_Member]) -> list[list[int]]:
    """Which of them travel together: equal on all ranks, for it depends on types and sizes only."""
    by_dtype: dict[str, list[list[int]]] = {}
    room: dict[str, int] = {}  # in the block that is being filled
    for place, member in enumerate(members):
        name = member.library.dtype(member.array)
        calls = by_dtype.setdefault(name, [])
        if member.nbytes >= ALONE_NBYTES:
            calls.insert(0, [place])
        elif member.nbytes <= room.get(name, -1):
            calls[-1].append(place)
            room[name] -= member.nbytes
        else:
            calls.append([place])
            room[name] = BLOCK_NBYTES - member.nbytes
    return [call for name in sorted(by_dtype) for call in by_dtype[name]]


def _check(function: str, members: list[_Member], op: Any, *, writes: bool) -> None:
    """Refuses, before anything is sent, what the core would refuse in one of the calls."""
    for member in members:
        library, array = member.library, member.array
        check_pairs(function, member.path, library.shape(array), op)
        check_block(function, member.path, library, array, op)
    if not writes:
        return
    ranges: list[tuple[int, int, str]] = []
    for member in members:
        if not member.library.mutable:
            continue
        if why := member.library.why_not_written(member.array):
            raise InvalidArgument(f"{function}: {member.path} {why}")
        if member.nbytes:
            ranges.append((*member.library.span(member.array), member.path))
    ranges.sort()
    for (_, end, path), (start, _, other) in itertools.pairwise(ranges):
        if start < end:
            raise InvalidArgument(
                f"{function}: {path} and {other} share memory: the result of one would be lost"
            )


def _digest(members: list[_Member]) -> int:
    """Tells lists apart that have as many elements in all."""
    shapes = [tuple(member.library.shape(member.array)) for member in members]
    return zlib.crc32(repr(shapes).encode()) or 1


def move_bundle(
    function: str, x: Any, call: Callable[[Any, int], Any], *, writes: bool, op: Any = None
) -> Any:
    """Hands `call` the arrays, packed into one block per element type; large ones as they lie."""
    members = _members(function, "x", x)
    _check(function, members, op, writes=writes)
    results = [member.array for member in members]
    if not members:
        call(np.empty(0, np.uint8), 0)  # an empty list still takes part
    for places in _calls(members):
        together = [members[place] for place in places]
        first = together[0]
        if len(together) == 1 and first.library.mutable and first.library.is_block(first.array):
            call(first.array, _digest(together))
            continue
        for place, result in zip(places, _move_packed(together, call, writes=writes), strict=True):
            results[place] = result
    return _rebuilt(x, iter(results)) if writes else x


def _move_packed(members: list[_Member], call: Callable[[Any, int], Any], *, writes: bool) -> list[Any]:
    with Room() as room:
        memory = room.take(sum(member.nbytes for member in members))
        places = np.cumsum([0] + [member.nbytes for member in members])
        pieces = []
        for member, begin, end in zip(members, places[:-1], places[1:], strict=True):
            library = member.library
            piece = library.on(memory[begin:end], member.array, library.shape(member.array))
            library.assign(piece, member.array)
            pieces.append(piece)
        first = members[0]
        count = sum(math.prod(member.library.shape(member.array)) for member in members)
        call(first.library.on(memory, first.array, (count,)), _digest(members))
        if not writes:
            return [member.array for member in members]
        return [_unpack(member, piece) for member, piece in zip(members, pieces, strict=True)]


def _unpack(member: _Member, piece: Any) -> Any:
    library = member.library
    if library.mutable:
        library.assign(member.array, piece)
        return member.array
    block = library.empty(member.array, library.shape(member.array))
    np.copyto(block, piece)
    return library.finished(block, member.array)


def _rebuilt(x: Any, results: Iterator[Any]) -> Any:
    """`x` itself if all its arrays could be written, else of the same kind with new ones."""
    if isinstance(x, dict):
        by_key = {key: _rebuilt(x[key], results) for key in sorted(x)}
        return x if all(by_key[key] is x[key] for key in x) else {key: by_key[key] for key in x}
    if isinstance(x, (list, tuple)):
        fresh = [_rebuilt(member, results) for member in x]
        if all(a is b for a, b in zip(fresh, x, strict=True)):
            return x
        return fresh if isinstance(x, list) else tuple(fresh)
    return next(results)
