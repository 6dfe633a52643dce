"""Lists, tuples and dicts of arrays in one call. All arrays of one dtype are sent as one array.

A dict of numbers is supported too. Numbers among arrays are refused, because the arrays would be
written in place and the numbers could not.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from pycollective.arrays.exact_ints import is_exact
from pycollective.arrays.gpu_arrays import is_on_gpu
from pycollective.arrays.int_members import IntMembers
from pycollective.arrays.libraries import Library, by_name, library_of, on_the_host
from pycollective.arrays.numbers import is_number
from pycollective.arrays.overlaps import Layout, overlap_in
from pycollective.calls.blocks import check_block, check_pairs
from pycollective.calls.scratch import Scratch
from pycollective.errors import CollectiveError, CollectiveMismatch, InvalidArgument, Unsupported

__all__ = ["Planned", "begin_coalesced", "is_list_of_arrays", "plan_coalesced", "run_coalesced"]

ALIGNED_NBYTES = 64
MOST_SHOWN = 8  # an error message shows at most this many arrays of a list
X = TypeVar("X")


def is_list_of_arrays(x: Any) -> bool:
    """Return whether `x` is a list, tuple or dict of arrays. A list of numbers is a vector."""
    if isinstance(x, dict):
        return True
    return isinstance(x, (list, tuple)) and not (len(x) > 0 and all(map(is_number, x)))


def _holds_numbers(x: Any) -> bool:
    """Return whether `x` is a dict with only numbers and such dicts as values."""
    return isinstance(x, dict) and len(x) > 0 and all(is_number(v) or _holds_numbers(v) for v in x.values())


@dataclass
class _Member:
    path: str  # "x[2]['bias']"
    array: Any
    library: Library
    nbytes: int
    # If the call only moves data: path of an earlier member with the same memory, to be sent once.
    same_as: str = ""

    @cached_property
    def is_block(self) -> bool:
        """library.is_block(array), computed once."""
        return self.library.is_block(self.array)


def _members(function: str, x: Any, op: Any) -> list[_Member]:
    """Return the arrays in `x`, those of dicts by sorted key.

    JAX arrays are copied to the host unless all arrays are JAX arrays on the same GPU.
    """
    found = _found(function, "x", x, op, takes_numbers=_holds_numbers(x))
    stays = [on_the_host(member.library) is not member.library for member in found]
    places = {str(m.array.devices()) if is_jax else "" for m, is_jax in zip(found, stays, strict=True)}
    if len(places) > 1:
        for member in found:
            member.library = on_the_host(member.library)
    return found


def _found(function: str, path: str, x: Any, op: Any, *, takes_numbers: bool) -> list[_Member]:
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
        if takes_numbers and is_number(member):
            library: Library = IntMembers(function, op) if is_exact(member, op) else by_name("numbers")
            found.append(_Member(name, member, library, library.nbytes(member)))
            continue
        if is_number(member):
            raise InvalidArgument(
                f"{function}: {name} is a number among arrays: pass numpy.array({member!r}){_else(function)}"
            )
        if isinstance(member, (list, tuple, dict)):
            found += _found(function, name, member, op, takes_numbers=takes_numbers)
            continue
        try:
            library = library_of(member)
            nbytes = library.nbytes(member)
        except CollectiveError as error:
            error.args = (f"{function}: {name}: {error}{_else(function)}",)
            raise
        found.append(_Member(name, member, library, nbytes))
    return found


def _find_tied(members: list[_Member]) -> None:
    """Mark each array that occurs again under another name, such as tied weights.

    The first occurrence is not marked.
    """
    first: dict[tuple[Layout, str], str] = {}
    for member in members:
        library, array = member.library, member.array
        if library.mutable and member.nbytes:
            path = first.setdefault((library.layout(array), library.dtype(array)), member.path)
            member.same_as = "" if path == member.path else path


def _only_moves(function: str) -> bool:
    return function.removesuffix("_async") in ("broadcast", "send", "recv")


def _else(function: str) -> str:
    """Return advice for arrays mixed with other objects, such as an optimizer's state, or ""."""
    moves = _only_moves(function)
    return f" ({function.removesuffix('_async')}_object() takes such mixtures)" if moves else ""


def _by_dtype(members: list[_Member]) -> list[list[int]]:
    """Return the positions of the members that are sent together: one list per dtype.

    The lists are equal on all ranks.
    """
    found: dict[str, list[int]] = {}
    for place, member in enumerate(members):
        if not member.same_as:
            found.setdefault(member.library.dtype(member.array), []).append(place)
    return [found[name] for name in sorted(found)]


def _check(function: str, members: list[_Member], op: Any, *, writes: bool) -> None:
    """Raise the core's errors for all members before anything is sent. Also marks tied arrays."""
    for member in members:
        library, array = member.library, member.array
        check_pairs(function, member.path, library.shape(array), op)
        check_block(function, member.path, library, array, op, is_block=member.is_block)
    if _only_moves(function):
        _find_tied(members)
    mutable = [member for member in members if member.library.mutable]
    for member in mutable if writes else ():
        if why := member.library.why_not_written(member.array):
            raise InvalidArgument(f"{function}: {member.path} {why}")
    # In a broadcast the root's list is checked too, although it is not written. Otherwise the other
    # ranks would fail and leave the root waiting.
    if writes or function.startswith("broadcast"):
        _check_apart(function, [member for member in mutable if member.nbytes and not member.same_as])


def _check_apart(function: str, members: list[_Member]) -> None:
    if overlap := overlap_in([member.library.layout(member.array) for member in members]):
        pair = f"{members[overlap.one].path} and {members[overlap.other].path}"
        lost = "the result of one would be lost"
        if _only_moves(function):
            lost = "one would be written over the other. Pass the larger of them alone, or copies"
        raise InvalidArgument(f"{function}: {pair} {overlap.words}: {lost}")


def _digest(members: list[_Member]) -> int:
    """Return the number of arrays and a checksum of their positions, keys, dtypes and shapes."""
    return len(members) << 32 | zlib.crc32("\n".join(map(_text, members)).encode())


def _text(member: _Member) -> str:
    library, array = member.library, member.array
    lengths = "][".join(map(str, library.shape(array)))
    tied = f", which is {member.same_as}" if member.same_as else ""
    return f"{member.path} {library.dtype(array)}[{lengths}]{tied}"


@contextlib.contextmanager
def _telling(function: str, members: list[_Member]) -> Iterator[None]:
    """Add this rank's list to a mismatch error. The core knows only the digest of the list."""
    try:
        yield
    except CollectiveMismatch as error:
        error.args = (f"{error}\n{_words(function, members)}",)
        raise


def _words(function: str, members: list[_Member]) -> str:
    shown = ", ".join(map(_text, members[:MOST_SHOWN]))
    more = f", and {len(members) - MOST_SHOWN} more" if len(members) > MOST_SHOWN else ""
    tied = [member for member in members[MOST_SHOWN:] if member.same_as]
    more += f" ({_text(tied[0])})" if tied else ""
    also = ", and what is one array under two names must be so on all ranks" if _only_moves(function) else ""
    what = f"Lists must be equal in order, keys, dtypes and shapes{also}"
    return f"{what}; this rank's is {shown or 'empty'}{more}"


def run_coalesced(
    function: str, x: Any, call: Callable[[list[Any], int], object], *, writes: bool, op: Any = None
) -> Any:
    """Pass the arrays of each dtype to `call` as blocks, with the digest of the whole list."""
    members = _members(function, x, op)
    _check(function, members, op, writes=writes)
    results = [member.array for member in members]
    digest = _digest(members)
    if not members:
        with _telling(function, members):
            call([_nothing(op)], digest)  # a rank with an empty list still takes part
    made: list[tuple[int, _Member, Any]] = []
    for places in _by_dtype(members):
        together = [members[place] for place in places]
        with Scratch() as scratch:
            blocks = _blocks(together, scratch, writes=writes)
            with _telling(function, members):
                call(blocks, digest)
            for place, member, block in zip(places, together, blocks, strict=True) if writes else ():
                if member.library.mutable:
                    _write_back(member, block)
                else:
                    made.append((place, member, block))
    if not made:
        return x  # everything was written in place
    # Results are finished after all calls: a result that does not fit into 64 bits raises here, and
    # must not prevent calls that the other ranks make.
    for place, member, block in made:
        results[place] = member.library.finished(block, member.array)
    return _rebuilt(x, iter(results))


def begin_coalesced(
    function: str, x: Any, begin: Callable[[list[Any], int], X], *, writes: bool, op: Any = None
) -> X:
    """Begin the call in the background. Refuses lists if results would have to be copied back."""
    members = _members(function, x, op)
    _check(function, members, op, writes=writes)
    for member in members:
        why = ""
        if writes and not member.library.mutable:
            why = "cannot be written"
        elif not member.is_block:
            why = "has gaps"
        if why:
            raise Unsupported(
                f"{function}: {member.path} {why}, so the call would have to copy it when it ends: pass a copy, or "
                f"call {function.removesuffix('_async')}()"
            )
    dtypes = sorted({member.library.dtype(member.array) for member in members})
    if len(dtypes) > 1:
        raise Unsupported(
            f"{function}: x has arrays of {' and '.join(dtypes)}: make one call for those of each dtype, or call "
            f"{function.removesuffix('_async')}(), which takes them all"
        )
    return begin(
        [member.array for member in members if not member.same_as] or [_nothing(op)], _digest(members)
    )


@dataclass(frozen=True)
class Planned:
    """A checked list in which the core can use all arrays in place."""

    blocks: list[list[Any]]  # one list for each dtype
    digest: int
    words: str  # describes the list for a mismatch error


def plan_coalesced(function: str, x: Any, op: Any) -> Planned | None:
    """Return what repeated in-place calls on `x` need.

    Returns None if an array is on a GPU or needs a copy.
    """
    members = _members(function, x, op)
    _check(function, members, op, writes=True)
    if any(is_on_gpu(member.array) for member in members):
        return None
    if not all(member.library.mutable and member.is_block for member in members):
        return None
    blocks = [[members[place].array for place in places] for places in _by_dtype(members)]
    return Planned(blocks or [[_nothing(op)]], _digest(members), _words("plan_allreduce", members))


def _nothing(op: Any) -> Any:
    """Return an empty array of a dtype that the operation supports, for an empty list."""
    return np.empty(0, np.uint8 if op in ("band", "bor", "bxor") else np.float32)


def _blocks(members: list[_Member], scratch: Scratch, *, writes: bool) -> list[Any]:
    """Return for each member the array itself if the core can use it in place, else a copy.

    Copies of mutable arrays are adjacent in memory.
    """
    copied = [m for m in members if not m.is_block and (m.library.mutable or not writes)]
    if not copied and not (writes and any(not member.library.mutable for member in members)):
        return [member.array for member in members]
    ends = np.cumsum([-(-member.nbytes // ALIGNED_NBYTES) * ALIGNED_NBYTES for member in copied])
    memory = scratch.take(int(ends[-1]) if copied else 0)
    begins = iter([0, *ends])
    blocks = []
    for member in members:
        library, array = member.library, member.array
        if writes and not library.mutable:
            block = library.empty(array, library.shape(array))
        elif member.is_block:
            blocks.append(array)
            continue
        else:
            begin = next(begins)
            block = library.on(memory[begin : begin + member.nbytes], array, library.shape(array))
        library.assign(block, array)
        blocks.append(block)
    return blocks


def _write_back(member: _Member, block: Any) -> None:
    if block is not member.array:
        member.library.assign(member.array, block)


def _rebuilt(x: Any, results: Iterator[Any]) -> Any:
    """Return a container like `x` with the results; `x` itself if all were written in place."""
    if isinstance(x, dict):
        by_key = {key: _rebuilt(x[key], results) for key in sorted(x)}
        return x if all(by_key[key] is x[key] for key in x) else {key: by_key[key] for key in x}
    if isinstance(x, (list, tuple)):
        fresh = [_rebuilt(member, results) for member in x]
        if all(a is b for a, b in zip(fresh, x, strict=True)):
            return x
        return fresh if isinstance(x, list) else tuple(fresh)
    return next(results)
