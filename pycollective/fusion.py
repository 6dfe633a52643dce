"""Lists, tuples and dicts of arrays as one call: arrays of one element type travel together, in one block.

Large ones travel alone: a message more costs them less than two copies.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pycollective.arrays import Library, library_of
from pycollective.arrays.numbers import is_number
from pycollective.blocks import check_pairs
from pycollective.errors import CollectiveError, InvalidArgument
from pycollective.staging import Room

__all__ = ["ALONE_NBYTES", "is_bundle", "move_bundle"]

ALONE_NBYTES = 1 << 20


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


def _calls(members: list[_Member]) -> list[list[_Member]]:
    """Who travels together: equal on all ranks, for it depends on types and sizes only."""
    calls: dict[tuple[str, int], list[_Member]] = {}
    for place, member in enumerate(members, 1):
        alone = place if member.nbytes >= ALONE_NBYTES else 0
        calls.setdefault((member.library.dtype(member.array), alone), []).append(member)
    return [calls[key] for key in sorted(calls)]


def _check(function: str, members: list[_Member], *, writes: bool) -> None:
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
    _check(function, members, writes=writes)
    for member in members:
        check_pairs(function, member.path, member.library.shape(member.array), op)
    new: dict[int, Any] = {}
    if not members:
        call(np.empty(0, np.uint8), 0)  # an empty list still takes part
    for together in _calls(members):
        first = together[0]
        if len(together) == 1 and first.library.mutable and first.library.is_block(first.array):
            call(first.array, _digest(together))
        else:
            new |= _move_packed(together, call, writes=writes)
    return _rebuilt(x, new) if writes else x


def _move_packed(members: list[_Member], call: Callable[[Any, int], Any], *, writes: bool) -> dict[int, Any]:
    """The results by identity of the array, if it writes."""
    new: dict[int, Any] = {}
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
        count = int(sum(np.prod(member.library.shape(member.array), dtype=np.int64) for member in members))
        call(first.library.on(memory, first.array, (count,)), _digest(members))
        if writes:
            for member, piece in zip(members, pieces, strict=True):
                new[id(member.array)] = _unpack(member, piece)
    return new


def _unpack(member: _Member, piece: Any) -> Any:
    library = member.library
    if library.mutable:
        library.assign(member.array, piece)
        return member.array
    block = library.empty(member.array, library.shape(member.array))
    np.copyto(block, piece)
    return library.finished(block, member.array)


def _rebuilt(x: Any, new: dict[int, Any]) -> Any:
    """`x` itself if all its arrays could be written, else of the same kind with new ones."""
    if isinstance(x, dict):
        fresh: Any = {key: _rebuilt(member, new) for key, member in x.items()}
        return x if all(fresh[key] is x[key] for key in x) else fresh
    if isinstance(x, (list, tuple)):
        fresh = [_rebuilt(member, new) for member in x]
        if all(a is b for a, b in zip(fresh, x, strict=True)):
            return x
        return fresh if isinstance(x, list) else tuple(fresh)
    return new.get(id(x), x)
