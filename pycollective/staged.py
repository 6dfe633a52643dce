"""Calls on what the core cannot take as it lies. The core comes here with those; it makes all others itself.

That is: arrays that are not in one block, that cannot be written, numbers, lists of arrays, parts of different sizes,
and other axes than the first. Elements are copied into one block where they must be, and results are copied back.
What users read about these calls is in bindings/group_docs.h and part_docs.h; parameters are the same here.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pycollective.arrays import by_name, library_of
from pycollective.arrays.library import Library, Shape
from pycollective.clock import Clock
from pycollective.errors import CollectiveError, InvalidArgument
from pycollective.fusion import is_bundle, move_bundle, reduce_bundle
from pycollective.staging import Room

if TYPE_CHECKING:
    from pycollective._core import Group

__all__ = [
    "allgather",
    "allreduce",
    "alltoall",
    "broadcast",
    "exscan",
    "gather",
    "recv",
    "reduce",
    "reduce_scatter",
    "scan",
    "scatter",
    "send",
]

Counts = Sequence[int] | Literal["auto"] | None


def _library(function: str, argument: str, x: Any) -> Library:
    try:
        library = library_of(x)
        library.shape(x)  # it can be read
        return library
    except CollectiveError as error:
        error.args = (f"{function}: {argument}: {error}",)
        raise


def _writable(function: str, argument: str, x: Any) -> Library:
    library = _library(function, argument, x)
    if why := library.why_not_written(x):
        raise InvalidArgument(f"{function}: {argument} {why}")
    return library


def _block(library: Library, x: Any, room: Room) -> Any:
    """`x` itself if the core can take it, else a copy."""
    return x if library.is_block(x) else _copy(library, x, room)


def _copy(library: Library, x: Any, room: Room) -> Any:
    block = _unfilled(library, x, library.shape(x), room)
    library.assign(block, x)
    return block


def _unfilled(library: Library, like: Any, shape: Shape, room: Room) -> Any:
    nbytes = library.nbytes(like)  # of as many elements as `like` has
    have = int(np.prod(library.shape(like), dtype=np.int64))
    itemsize = nbytes // have if have else library.empty(like, (1,)).nbytes
    return library.on(room.take(int(np.prod(shape, dtype=np.int64)) * itemsize), like, shape)


# ---- element by element: every rank's array has one shape


def _elementwise(
    group: Group, name: str, x: Any, out: Any, op: Any, root: int, timeout: float | None, *, writes: bool
) -> Any:
    library = _library(name, "x", x)
    with Room() as room:
        if not writes:
            group._run(name, _block(library, x, room), None, op, root, None, None, 0, timeout)
            return x
        if out is not None:
            return _into(group, name, x, out, op, root, timeout, library, room)
        if not library.mutable:
            block = library.empty(x, library.shape(x))
            library.assign(block, x)
        else:
            _writable(name, "x", x)
            block = x if library.is_block(x) else _copy(library, x, room)
        group._run(name, block, block, op, root, None, None, 0, timeout)
        if not library.mutable:
            return library.finished(block, x)
        if block is not x:
            library.assign(x, block)
        return x


def _into(
    group: Group,
    name: str,
    x: Any,
    out: Any,
    op: Any,
    root: int,
    timeout: float | None,
    library: Library,
    room: Room,
) -> Any:
    target = _writable(name, "out", out)
    if library.shape(x) != target.shape(out) or library.dtype(x) != target.dtype(out):
        raise InvalidArgument(
            f"{name}: out is {target.dtype(out)} of shape {target.shape(out)}, but x is {library.dtype(x)} of shape "
            f"{library.shape(x)}"
        )
    source = _block(library, x, room)
    if target.is_block(out):
        group._run(name, source, out, op, root, None, None, 0, timeout)
        return out
    block = _unfilled(target, out, target.shape(out), room)
    group._run(name, source, block, op, root, None, None, 0, timeout)
    if name != "exscan" or group.rank > 0:
        target.assign(out, block)
    return out


def allreduce(group: Group, x: Any, op: Any = "sum", *, out: Any = None, timeout: float | None = None) -> Any:
    """Every rank gets the combination of all."""
    if is_bundle(x):
        return reduce_bundle(group, "allreduce", x, op, 0, out, Clock(timeout), writes=True)
    return _elementwise(group, "allreduce", x, out, op, 0, timeout, writes=True)


def scan(group: Group, x: Any, op: Any = "sum", *, out: Any = None, timeout: float | None = None) -> Any:
    """Rank r gets the combination of ranks 0 to r."""
    if is_bundle(x):
        return reduce_bundle(group, "scan", x, op, 0, out, Clock(timeout), writes=True)
    return _elementwise(group, "scan", x, out, op, 0, timeout, writes=True)


def exscan(group: Group, x: Any, op: Any = "sum", *, out: Any = None, timeout: float | None = None) -> Any:
    """Rank r gets the combination of ranks 0 to r - 1."""
    if is_bundle(x):
        return reduce_bundle(group, "exscan", x, op, 0, out, Clock(timeout), writes=True)
    return _elementwise(group, "exscan", x, out, op, 0, timeout, writes=True)


def reduce(group: Group, x: Any, op: Any = "sum", *, root: int = 0, timeout: float | None = None) -> Any:
    """The root gets the combination of all."""
    writes = operator.index(root) == group.rank
    if is_bundle(x):
        return reduce_bundle(group, "reduce", x, op, root, None, Clock(timeout), writes=writes)
    return _elementwise(group, "reduce", x, None, op, root, timeout, writes=writes)


def broadcast(group: Group, x: Any, root: int = 0, *, timeout: float | None = None) -> Any:
    """Every rank gets the root's array."""
    writes = operator.index(root) != group.rank
    if is_bundle(x):
        return reduce_bundle(group, "broadcast", x, None, root, None, Clock(timeout), writes=writes)
    return _elementwise(group, "broadcast", x, None, None, root, timeout, writes=writes)


# ---- messages


def send(group: Group, x: Any, peer: int, *, tag: int = 0, timeout: float | None = None) -> Any:
    """One rank to another."""
    if is_bundle(x):
        clock = Clock(timeout)
        move_bundle(
            "send", x, lambda block, _: group.send(block, peer, tag=tag, timeout=clock.left_s()), writes=False
        )
        return x
    library = _library("send", "x", x)
    with Room() as room:
        group.send(_copy(library, x, room), peer, tag=tag, timeout=timeout)
    return x


def recv(group: Group, x: Any, peer: int, *, tag: int = 0, timeout: float | None = None) -> Any:
    """What another rank sends."""
    if is_bundle(x):
        clock = Clock(timeout)
        return move_bundle(
            "recv", x, lambda block, _: group.recv(block, peer, tag=tag, timeout=clock.left_s()), writes=True
        )
    library = _library("recv", "x", x)
    if not library.mutable:
        block = library.empty(x, library.shape(x))
        group.recv(block, peer, tag=tag, timeout=timeout)
        return library.finished(block, x)
    _writable("recv", "x", x)
    with Room() as room:
        block = _unfilled(library, x, library.shape(x), room)
        group.recv(block, peer, tag=tag, timeout=timeout)
        library.assign(x, block)
    return x


# ---- parts: every rank has a part of one array


class _Parts:
    """One such call on this rank."""

    def __init__(self, name: str, group: Group, axis: int, timeout: float | None) -> None:
        self.name, self.group, self.clock = name, group, Clock(timeout)
        self._axis = axis
        self.axis = 0

    def refuse(self, what: str) -> InvalidArgument:
        return InvalidArgument(f"{self.name}: {what}")

    def front(self, library: Library, x: Any) -> Any:
        """`x` with the axis of the parts first."""
        shape = library.shape(x)
        ndim = max(1, len(shape))
        self.axis = operator.index(self._axis)
        if not -ndim <= self.axis < ndim:
            raise self.refuse(f"axis {self._axis} is none of an array of shape {shape}")
        self.axis %= ndim
        return x if self.axis == 0 else library.moved(x, self.axis, 0)

    def back(self, library: Library, x: Any) -> Any:
        return x if self.axis == 0 else library.moved(x, 0, self.axis)

    def listed(self, counts: Any, name: str = "counts") -> list[int]:
        if isinstance(counts, str):
            raise self.refuse(f'{name} is {counts!r}: give a list of lengths, one for each rank, or "auto"')
        lengths = [operator.index(count) for count in counts]
        if len(lengths) != self.group.size or any(length < 0 for length in lengths):
            raise self.refuse(
                f"{name}={counts!r:.80} is not a list of {self.group.size} lengths, one for each rank"
            )
        return lengths

    def lengths_of_all(self, mine: int) -> list[int]:
        """What every rank says, told to all."""
        told = self.group.allgather(np.array([mine]), timeout=self.clock.left_s())
        return [int(length) for length in told]

    def as_equal_as_possible(self, length: int) -> list[int]:
        each, more = divmod(length, self.group.size)
        return [each + (rank < more) for rank in range(self.group.size)]

    def own(self, lengths: list[int], have: int) -> None:
        if lengths[self.group.rank] != have:
            raise self.refuse(
                f"x has length {have} along axis {self.axis}, and counts says {lengths[self.group.rank]} for this rank"
            )

    def run(
        self,
        source: tuple[Library, Any] | None,
        result: tuple[Library, Any, Shape]
        | None,  # library, what it shall be like, its shape (with the axis first)
        out: Any,
        *,
        op: Any = None,
        root: int = 0,
        counts: list[int] | None = None,
        recv_counts: list[int] | None = None,
        row: int = 1,
    ) -> Any:
        """Makes the call: rows to elements, blocks in and out."""
        with Room() as room:
            block_in = None if source is None else _block(*source, room)
            block_out, finish = (
                (None, lambda: None) if result is None else self._target(result, out, block_in, room)
            )
            self.group._run(
                self.name,
                block_in,
                block_out,
                op,
                root,
                None if counts is None else [count * row for count in counts],
                None if recv_counts is None else [count * row for count in recv_counts],
                0,
                self.clock.left_s(),
            )
            return finish()

    def _target(
        self, result: tuple[Library, Any, Shape], out: Any, block_in: Any, room: Room
    ) -> tuple[Any, Any]:
        library, like, shape = result
        if out is None:
            block = library.empty(like, shape)
            return block, lambda: self._joined(library, block)
        target = _writable(self.name, "out", out)
        view = self.front(target, out)
        if target.shape(view) != shape or target.dtype(view) != library.dtype(like):
            raise self.refuse(
                f"out is {target.dtype(out)} of shape {target.shape(out)}, but the result {library.dtype(like)} of "
                f"shape {self.back_shape(shape)}"
            )
        if target.is_block(view) and not (self.name == "alltoall" and out is block_in):
            return view, lambda: out
        block = _unfilled(target, out, shape, room)

        def finish() -> Any:
            target.assign(view, block)
            return out

        return block, finish

    def _joined(self, library: Library, block: Any) -> Any:
        tidy = _tidy(library, self.back(library, block), self.axis)
        return library.finished(tidy, tidy)

    def back_shape(self, shape: Shape) -> Shape:
        rest = list(shape[1:])
        return (*rest[: self.axis], shape[0], *rest[self.axis :])


def _tidy(library: Library, x: Any, axis: int) -> Any:
    """In one block again after the axes were moved."""
    if axis == 0:
        return x
    block = library.empty(x, library.shape(x))
    library.assign(block, x)
    return block


def _row(shape: Shape) -> int:
    return int(np.prod(shape[1:], dtype=np.int64))


def _whole(shape: Shape, length: int) -> Shape:
    return (length, *shape[1:])


def allgather(
    group: Group,
    x: Any,
    *,
    out: Any = None,
    counts: Counts = None,
    axis: int = 0,
    timeout: float | None = None,
) -> Any:
    """Every rank gets the parts of all."""
    return _gathered("allgather", group, x, 0, out, counts, axis, timeout)


def gather(
    group: Group,
    x: Any,
    root: int = 0,
    *,
    out: Any = None,
    counts: Counts = None,
    axis: int = 0,
    timeout: float | None = None,
) -> Any:
    """The root gets the parts of all."""
    return _gathered("gather", group, x, root, out, counts, axis, timeout)


def _gathered(
    name: str, group: Group, x: Any, root: int, out: Any, counts: Counts, axis: int, timeout: float | None
) -> Any:
    call = _Parts(name, group, axis, timeout)
    library = _library(name, "x", x)
    part = call.front(library, x)
    shape = library.shape(part) or (1,)
    lengths = None
    if counts is not None:
        lengths = call.lengths_of_all(shape[0]) if counts == "auto" else call.listed(counts)
        call.own(lengths, shape[0])
    whole = _whole(shape, sum(lengths) if lengths is not None else shape[0] * group.size)
    gets = name == "allgather" or operator.index(root) == group.rank
    return call.run(
        (library, part),
        (library, x, whole) if gets else None,
        out,
        root=root,
        counts=lengths,
        row=_row(shape),
    )


def reduce_scatter(
    group: Group,
    x: Any,
    op: Any = "sum",
    *,
    out: Any = None,
    counts: Counts = None,
    axis: int = 0,
    timeout: float | None = None,
) -> Any:
    """Every rank gets its part of the combination of all."""
    call = _Parts("reduce_scatter", group, axis, timeout)
    library = _library("reduce_scatter", "x", x)
    whole = call.front(library, x)
    shape = library.shape(whole)
    lengths = _cut(call, shape, counts)
    mine = _whole(shape, lengths[group.rank])
    told = None if counts is None else lengths
    return call.run((library, whole), (library, x, mine), out, op=op, counts=told, row=_row(shape))


def _cut(call: _Parts, shape: Shape, counts: Counts) -> list[int]:
    """The lengths of the parts of an array of that shape."""
    if not shape:
        raise call.refuse("x has no axis to cut: it is a 0-d array")
    if counts is not None:
        lengths = call.as_equal_as_possible(shape[0]) if counts == "auto" else call.listed(counts)
        if sum(lengths) != shape[0]:
            raise call.refuse(
                f"counts add up to {sum(lengths)}, and x has length {shape[0]} along axis {call.axis}"
            )
        return lengths
    if shape[0] % call.group.size:
        raise call.refuse(
            f"x of shape {call.back_shape(shape)} cannot be cut into {call.group.size} equal parts along axis "
            f'{call.axis}: give counts=, a list or "auto"'
        )
    return [shape[0] // call.group.size] * call.group.size


def alltoall(
    group: Group,
    x: Any,
    *,
    out: Any = None,
    counts: Sequence[int] | None = None,
    recv_counts: Sequence[int] | None = None,
    axis: int = 0,
    timeout: float | None = None,
) -> Any:
    """Every rank gets a part of every other's array."""
    call = _Parts("alltoall", group, axis, timeout)
    library = _library("alltoall", "x", x)
    whole = call.front(library, x)
    shape = library.shape(whole)
    if isinstance(counts, str):
        raise call.refuse("counts is the length of what goes to each rank; nobody else knows that")
    if counts is None and recv_counts is not None:
        raise call.refuse("recv_counts needs counts: the length of what goes to each rank")
    lengths = _cut(call, shape, counts)
    if counts is None:
        return call.run((library, whole), (library, x, shape), out)
    if recv_counts is not None:
        coming = call.listed(recv_counts, "recv_counts")
    else:
        told = group.alltoall(np.array(lengths), timeout=call.clock.left_s())
        coming = [int(length) for length in told]
    return call.run(
        (library, whole),
        (library, x, _whole(shape, sum(coming))),
        out,
        counts=lengths,
        recv_counts=coming,
        row=_row(shape),
    )


def scatter(
    group: Group,
    x: Any,
    root: int = 0,
    *,
    out: Any = None,
    counts: Counts = None,
    axis: int = 0,
    timeout: float | None = None,
) -> Any:
    """Every rank gets its part of the root's array."""
    call = _Parts("scatter", group, axis, timeout)
    if out is not None:
        return _scatter_into(call, x, root, out, counts)
    if operator.index(root) != group.rank:
        header = group.broadcast_object(None, root, timeout=call.clock.left_s())
        name, lengths, rest, call.axis, element, even = header
        library = by_name(name)
        like = _like(library, element)
    else:
        library = _library("scatter", "x", x)
        whole = call.front(library, x)
        shape = library.shape(whole)
        lengths, rest, even, like = _cut(call, shape, counts), shape[1:], counts is None, x
        header = (library.name, lengths, rest, call.axis, _element(library, x), even)
        group.broadcast_object(header, root, timeout=call.clock.left_s())
    source = (library, whole) if operator.index(root) == group.rank else None
    mine = (lengths[group.rank], *rest)
    told = None if even else lengths
    return call.run(source, (library, like, mine), None, root=root, counts=told, row=_row(mine))


def _element(library: Library, x: Any) -> Any:
    """What tells another rank the element type: an array without elements, or a list of fields."""
    empty = library.empty(x, (0,))
    return np.lib.format.dtype_to_descr(empty.dtype) if getattr(empty.dtype, "names", None) else empty


def _like(library: Library, element: Any) -> Any:
    empty = np.empty(0, np.lib.format.descr_to_dtype(element)) if isinstance(element, list) else element
    return library.finished(empty, empty)


def _scatter_into(call: _Parts, x: Any, root: int, out: Any, counts: Counts) -> Any:
    target = _writable("scatter", "out", out)
    mine = target.shape(call.front(target, out)) or (1,)
    lengths = None
    if counts == "auto":
        raise call.refuse('counts="auto" is for calls without out=: only the root knows how long x is')
    if counts is not None:
        lengths = call.listed(counts)
        call.own(lengths, mine[0])
    source = None
    if operator.index(root) == call.group.rank:
        library = _library("scatter", "x", x)
        whole = call.front(library, x)
        shape = library.shape(whole)
        if shape[1:] != mine[1:] or _cut(call, shape, lengths)[call.group.rank] != mine[0]:
            raise call.refuse(
                f"out has shape {target.shape(out)}, which is no part of x of shape {library.shape(x)}"
            )
        source = (library, whole)
    return call.run(source, (target, out, mine), out, root=root, counts=lengths, row=_row(mine))
