"""The buffers, the call and the check of one collective at one size. float32 and sum.

The data are whole numbers so small that every order of adding them gives the same bits. A collective with a root has
another one in each call, so that a call waits for the one before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from pycollective.tools.compare.peer import Peer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float32]

Step = Callable[[int], object]

PAGE = 4096
WIDTH = 4


def buffer(count: int) -> Array:
    """Zeros on a page of their own, as large arrays are, all of them touched."""
    raw = np.zeros(count * WIDTH + PAGE, np.uint8)
    before = -raw.ctypes.data % PAGE
    array: Array = raw[before : before + count * WIDTH].view(np.float32)
    array.fill(0)
    return array


def pattern(rank: int, count: int, salt: int = 0) -> Array:
    """What a rank puts in: repeats with a prime period, and differs from rank to rank."""
    values: Array = ((np.arange(count) % 1021 * 7 + 3 * salt) % 31 + rank + 1).astype(np.float32)
    return values


def total(ranks: range, count: int, salt: int = 0) -> Array:
    """The sum of what these ranks put in."""
    values: Array = pattern(0, count, salt) * np.float32(len(ranks)) + np.float32(sum(ranks))
    return values


@dataclass
class Cell:
    """One collective at one size, as one rank sees it."""

    step: Step  # one call; its number chooses the root
    fill: Callable[[], None]
    right: Callable[[int], bool]  # after fill() and one call with that root
    arrays: list[Array] = field(default_factory=list)
    trips: int = 1  # of the data in one call


def _same(found: Array, wanted: Array) -> bool:
    return bool(np.array_equal(found, wanted))


def _in_place(
    peer: Peer, count: int, step: Callable[[Any], Step], wanted: Callable[[int], Array | None]
) -> Cell:
    array = buffer(count)

    def fill() -> None:
        array[:] = pattern(peer.rank, count)

    def right(root: int) -> bool:
        expected = wanted(root)
        return expected is None or _same(array, expected)

    return Cell(step(peer.wrap(array)), fill, right, [array])


def _plain(call: Callable[[Any], object]) -> Callable[[Any], Step]:
    return lambda x: lambda i: call(x)


def _rooted(call: Callable[[Any, int], object], size: int) -> Callable[[Any], Step]:
    return lambda x: lambda i: call(x, i % size)


def allreduce(peer: Peer, count: int) -> Cell:
    return _in_place(peer, count, _plain(peer.allreduce), lambda root: total(range(peer.size), count))


def broadcast(peer: Peer, count: int) -> Cell:
    return _in_place(peer, count, _rooted(peer.broadcast, peer.size), lambda root: pattern(root, count))


def reduce(peer: Peer, count: int) -> Cell:
    def wanted(root: int) -> Array | None:
        return total(range(peer.size), count) if peer.rank == root else None

    return _in_place(peer, count, _rooted(peer.reduce, peer.size), wanted)


def scan(peer: Peer, count: int) -> Cell:
    return _in_place(peer, count, _plain(peer.scan), lambda root: total(range(peer.rank + 1), count))


def exscan(peer: Peer, count: int) -> Cell:
    def wanted(root: int) -> Array | None:
        del root
        return total(range(peer.rank), count) if peer.rank > 0 else None

    return _in_place(peer, count, _plain(peer.exscan), wanted)


def sendrecv(peer: Peer, count: int) -> Cell:
    """Ranks 0 and 1, 2 and 3, ... there and back, all pairs at once; an odd last one has nobody."""
    mate, send, recv = peer.rank ^ 1, peer.send, peer.recv

    def ask(x: Any) -> object:
        send(x, mate)
        return recv(x, mate)

    def answer(x: Any) -> object:
        recv(x, mate)
        return send(x, mate)

    def stand_by(x: Any) -> None:
        del x

    mine = stand_by if mate >= peer.size else ask if peer.rank < mate else answer
    cell = _in_place(peer, count, _plain(mine), lambda root: pattern(peer.rank & ~1, count))
    cell.trips = 2
    return cell


def _part(whole: Array, rank: int, size: int) -> Array:
    return whole[rank * (len(whole) // size) : (rank + 1) * (len(whole) // size)]


def _two(
    peer: Peer,
    counts: tuple[int, int],
    step: Callable[[Array, Array], Step],
    wanted: Callable[[int], Array | None],
) -> Cell:
    source, out = buffer(counts[0]), buffer(counts[1])

    def fill() -> None:
        source[:] = pattern(peer.rank, counts[0])
        out.fill(-1)

    def right(root: int) -> bool:
        expected = wanted(root)
        return expected is None or _same(out, expected)

    return Cell(step(source, out), fill, right, [source, out])


def _everyones(peer: Peer, part: int) -> Array:
    values: Array = np.concatenate([pattern(rank, part) for rank in range(peer.size)])
    return values


def allgather(peer: Peer, count: int) -> Cell:
    part = max(1, count // peer.size)

    def step(source: Array, out: Array) -> Step:
        x, whole, call = peer.wrap(source), peer.wrap(out), peer.allgather
        return lambda i: call(x, whole)

    return _two(peer, (part, part * peer.size), step, lambda root: _everyones(peer, part))


def gather(peer: Peer, count: int) -> Cell:
    part = max(1, count // peer.size)

    def step(source: Array, out: Array) -> Step:
        x, cut = peer.wrap(source), peer.cut(peer.wrap(out))
        return lambda i: peer.gather(x, cut, i % peer.size)

    return _two(
        peer,
        (part, part * peer.size),
        step,
        lambda root: _everyones(peer, part) if peer.rank == root else None,
    )


def reduce_scatter(peer: Peer, count: int) -> Cell:
    part = max(1, count // peer.size)

    def step(source: Array, out: Array) -> Step:
        whole, y, call = peer.wrap(source), peer.wrap(out), peer.reduce_scatter
        return lambda i: call(whole, y)

    return _two(
        peer,
        (part * peer.size, part),
        step,
        lambda root: _part(total(range(peer.size), part * peer.size), peer.rank, peer.size),
    )


def scatter(peer: Peer, count: int) -> Cell:
    part = max(1, count // peer.size)

    def step(source: Array, out: Array) -> Step:
        cut, y = peer.cut(peer.wrap(source)), peer.wrap(out)
        return lambda i: peer.scatter(cut, y, i % peer.size)

    return _two(
        peer,
        (part * peer.size, part),
        step,
        lambda root: _part(pattern(root, part * peer.size), peer.rank, peer.size),
    )


def alltoall(peer: Peer, count: int) -> Cell:
    whole = max(1, count // peer.size) * peer.size

    def step(source: Array, out: Array) -> Step:
        x, y, call = peer.wrap(source), peer.wrap(out), peer.alltoall
        return lambda i: call(x, y)

    def wanted(root: int) -> Array:
        del root
        parts = [_part(pattern(rank, whole), peer.rank, peer.size) for rank in range(peer.size)]
        values: Array = np.concatenate(parts)
        return values

    return _two(peer, (whole, whole), step, wanted)


def barrier(peer: Peer, count: int) -> Cell:
    del count
    return Cell(lambda i: peer.barrier(), lambda: None, lambda root: True)


CELLS: dict[str, Callable[[Peer, int], Cell]] = {
    each.__name__: each
    for each in (
        allreduce,
        broadcast,
        reduce,
        allgather,
        reduce_scatter,
        alltoall,
        gather,
        scatter,
        scan,
        exscan,
        sendrecv,
        barrier,
    )
}


def make(peer: Peer, name: str, nbytes: int) -> Cell:
    """Whole elements, at least one."""
    return CELLS[name](peer, max(1, nbytes // WIDTH))
