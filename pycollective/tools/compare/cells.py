"""The buffers, the call and the check of one collective at one size, for float32 and sum.

The data are whole numbers so small that every order of addition gives the same bits. A collective
with a root uses a different root in each call, so that a call cannot begin before the previous one
has ended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from pycollective.tools.compare.adapter import Adapter

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float32]

Step = Callable[[int], object]

PAGE = 4096
WIDTH = 4


def buffer(count: int) -> Array:
    """Returns zeros in page-aligned memory, as large arrays have. All pages have been touched."""
    raw = np.zeros(count * WIDTH + PAGE, np.uint8)
    before = -raw.ctypes.data % PAGE
    array: Array = raw[before : before + count * WIDTH].view(np.float32)
    array.fill(0)
    return array


def pattern(rank: int, count: int, salt: int = 0) -> Array:
    """Returns a rank's input. It repeats with a prime period and differs between ranks."""
    values: Array = ((np.arange(count) % 1021 * 7 + 3 * salt) % 31 + rank + 1).astype(np.float32)
    return values


def total(ranks: range, count: int, salt: int = 0) -> Array:
    """Returns the sum of the inputs of these ranks."""
    values: Array = pattern(0, count, salt) * np.float32(len(ranks)) + np.float32(sum(ranks))
    return values


@dataclass
class Cell:
    """One collective at one size, on one rank."""

    step: Step  # makes one call; the argument is its number, which determines the root
    fill: Callable[[], None]
    # returns whether the result is correct after fill() and one call with the given root
    right: Callable[[int], bool]
    arrays: list[Array] = field(default_factory=list)
    trips: int = 1  # how often one call transfers the data


def _same(found: Array, wanted: Array) -> bool:
    return bool(np.array_equal(found, wanted))


def _in_place(
    adapter: Adapter, count: int, step: Callable[[Any], Step], wanted: Callable[[int], Array | None]
) -> Cell:
    array = buffer(count)

    def fill() -> None:
        array[:] = pattern(adapter.rank, count)

    def right(root: int) -> bool:
        expected = wanted(root)
        return expected is None or _same(array, expected)

    return Cell(step(adapter.wrap(array)), fill, right, [array])


def _plain(call: Callable[[Any], object]) -> Callable[[Any], Step]:
    return lambda x: lambda i: call(x)


def _rooted(call: Callable[[Any, int], object], size: int) -> Callable[[Any], Step]:
    return lambda x: lambda i: call(x, i % size)


def allreduce(adapter: Adapter, count: int) -> Cell:
    return _in_place(
        adapter, count, _plain(adapter.allreduce), lambda root: total(range(adapter.size), count)
    )


def broadcast(adapter: Adapter, count: int) -> Cell:
    return _in_place(
        adapter, count, _rooted(adapter.broadcast, adapter.size), lambda root: pattern(root, count)
    )


def reduce(adapter: Adapter, count: int) -> Cell:
    def wanted(root: int) -> Array | None:
        return total(range(adapter.size), count) if adapter.rank == root else None

    return _in_place(adapter, count, _rooted(adapter.reduce, adapter.size), wanted)


def scan(adapter: Adapter, count: int) -> Cell:
    return _in_place(adapter, count, _plain(adapter.scan), lambda root: total(range(adapter.rank + 1), count))


def exscan(adapter: Adapter, count: int) -> Cell:
    def wanted(root: int) -> Array | None:
        del root
        return total(range(adapter.rank), count) if adapter.rank > 0 else None

    return _in_place(adapter, count, _plain(adapter.exscan), wanted)


def sendrecv(adapter: Adapter, count: int) -> Cell:
    """Ranks 0 and 1, 2 and 3, ... send back and forth at the same time. An odd last rank idles."""
    partner, send, recv = adapter.rank ^ 1, adapter.send, adapter.recv

    def ping(x: Any) -> object:
        send(x, partner)
        return recv(x, partner)

    def pong(x: Any) -> object:
        recv(x, partner)
        return send(x, partner)

    def idle(x: Any) -> None:
        del x

    mine = idle if partner >= adapter.size else ping if adapter.rank < partner else pong
    cell = _in_place(adapter, count, _plain(mine), lambda root: pattern(adapter.rank & ~1, count))
    cell.trips = 2
    return cell


def _part(whole: Array, rank: int, size: int) -> Array:
    return whole[rank * (len(whole) // size) : (rank + 1) * (len(whole) // size)]


def _two(
    adapter: Adapter,
    counts: tuple[int, int],
    step: Callable[[Array, Array], Step],
    wanted: Callable[[int], Array | None],
) -> Cell:
    source, out = buffer(counts[0]), buffer(counts[1])

    def fill() -> None:
        source[:] = pattern(adapter.rank, counts[0])
        out.fill(-1)

    def right(root: int) -> bool:
        expected = wanted(root)
        return expected is None or _same(out, expected)

    return Cell(step(source, out), fill, right, [source, out])


def _everyones(adapter: Adapter, part: int) -> Array:
    values: Array = np.concatenate([pattern(rank, part) for rank in range(adapter.size)])
    return values


def allgather(adapter: Adapter, count: int) -> Cell:
    part = max(1, count // adapter.size)

    def step(source: Array, out: Array) -> Step:
        x, whole, call = adapter.wrap(source), adapter.wrap(out), adapter.allgather
        return lambda i: call(x, whole)

    return _two(adapter, (part, part * adapter.size), step, lambda root: _everyones(adapter, part))


def gather(adapter: Adapter, count: int) -> Cell:
    part = max(1, count // adapter.size)

    def step(source: Array, out: Array) -> Step:
        x, cut = adapter.wrap(source), adapter.cut(adapter.wrap(out))
        return lambda i: adapter.gather(x, cut, i % adapter.size)

    return _two(
        adapter,
        (part, part * adapter.size),
        step,
        lambda root: _everyones(adapter, part) if adapter.rank == root else None,
    )


def reduce_scatter(adapter: Adapter, count: int) -> Cell:
    part = max(1, count // adapter.size)

    def step(source: Array, out: Array) -> Step:
        whole, y, call = adapter.wrap(source), adapter.wrap(out), adapter.reduce_scatter
        return lambda i: call(whole, y)

    return _two(
        adapter,
        (part * adapter.size, part),
        step,
        lambda root: _part(total(range(adapter.size), part * adapter.size), adapter.rank, adapter.size),
    )


def scatter(adapter: Adapter, count: int) -> Cell:
    part = max(1, count // adapter.size)

    def step(source: Array, out: Array) -> Step:
        cut, y = adapter.cut(adapter.wrap(source)), adapter.wrap(out)
        return lambda i: adapter.scatter(cut, y, i % adapter.size)

    return _two(
        adapter,
        (part * adapter.size, part),
        step,
        lambda root: _part(pattern(root, part * adapter.size), adapter.rank, adapter.size),
    )


def alltoall(adapter: Adapter, count: int) -> Cell:
    whole = max(1, count // adapter.size) * adapter.size

    def step(source: Array, out: Array) -> Step:
        x, y, call = adapter.wrap(source), adapter.wrap(out), adapter.alltoall
        return lambda i: call(x, y)

    def wanted(root: int) -> Array:
        del root
        parts = [_part(pattern(rank, whole), adapter.rank, adapter.size) for rank in range(adapter.size)]
        values: Array = np.concatenate(parts)
        return values

    return _two(adapter, (whole, whole), step, wanted)


def barrier(adapter: Adapter, count: int) -> Cell:
    del count
    return Cell(lambda i: adapter.barrier(), lambda: None, lambda root: True)


CELLS: dict[str, Callable[[Adapter, int], Cell]] = {
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


def make(adapter: Adapter, name: str, nbytes: int) -> Cell:
    """Makes a cell with nbytes rounded down to whole elements, at least one."""
    return CELLS[name](adapter, max(1, nbytes // WIDTH))
