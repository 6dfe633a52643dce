"""The experiments: calls of several sizes in worlds that differ in one setting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pycollective import _core

KIB, MIB = 1 << 10, 1 << 20
MOST_RANKS_WITH_HEAP = 8  # a heap takes 64 MiB for each rank in each world
CACHED = "512k"  # chunk size in the default rows of the selection table for large arrays
# broadcast is not measured, because with two ranks its limit is only half of `moved_at_once`
AT_ONCE_CELLS = ("allgather", "reduce_scatter")


@dataclass(frozen=True)
class World:
    """The settings of one of the compared worlds."""

    transport: str  # "shm" or "tcp"
    tuning: str = ""  # limits in the form that csrc/tuning/tuning.h describes
    tune: str = ""  # selection rows in the form that csrc/tuning/selection.h describes


@dataclass(frozen=True)
class Cell:
    """One kind of call; `nbytes` is the size of the whole array."""

    collective: str
    nbytes: int
    in_heap: bool = False


@dataclass(frozen=True)
class Cut:
    """Finds the size from which the second world's algorithm replaces that of the first world."""

    name: str  # name of the setting
    default: int  # the first size of the second algorithm; one of `sizes`, or twice the last
    sizes: tuple[int, ...]
    cells: tuple[Cell, ...]
    worlds: tuple[World, World]
    inclusive: bool = (
        # whether the setting is the largest size of the first algorithm, not the smallest of the
        # second
        False
    )


@dataclass(frozen=True)
class Values:
    """Finds the best value of a setting. `values` has one value per world, the default first."""

    name: str
    values: tuple[str, ...]
    cells: tuple[Cell, ...]
    worlds: tuple[World, ...]


Experiment = Cut | Values


def doubling(first: int, last: int) -> tuple[int, ...]:
    """Returns `first`, 2 * `first`, 4 * `first`, ... up to `last`."""
    sizes = [first]
    while sizes[-1] * 2 <= last:
        sizes.append(sizes[-1] * 2)
    return tuple(sizes)


def cells_of(collectives: Sequence[str], sizes: Sequence[int], *, in_heap: bool = False) -> tuple[Cell, ...]:
    """Returns a cell for each collective at each size."""
    return tuple(Cell(collective, nbytes, in_heap) for nbytes in sizes for collective in collectives)


def size_text(nbytes: int) -> str:
    """Returns text such as `64k` for 65536, as in profiles."""
    for unit, shift in (("g", 30), ("m", 20), ("k", 10)):
        if nbytes and nbytes % (1 << shift) == 0:
            return f"{nbytes >> shift}{unit}"
    return str(nbytes)


def shared(ranks: int, **limits: str | int) -> World:
    """Returns a shared-memory world in which `limits` replace the defaults."""
    return World("shm", "|".join(f"{ranks}:{name}={value}" for name, value in limits.items()))


def at_once(ranks: int, name: str, collectives: Sequence[str], default: int, largest: int) -> Cut:
    """Returns the experiment for a limit up to which arrays use one exchange instead of several."""
    sizes = doubling(max(KIB, default // 8), min(largest, default * 16))
    worlds = shared(ranks, **{name: largest}), shared(ranks, **{name: 64})
    return Cut(name, 2 * default, sizes, cells_of(collectives, sizes), worlds, inclusive=True)


def over_shared_memory(ranks: int) -> Iterator[Experiment]:
    """Yields the experiments for the limits of csrc/engine/shm/limits.h."""
    usual = _core._limits(ranks)
    largest = usual["ring"] // 4
    yield at_once(ranks, "combined_at_once", ["allreduce"], usual["combined_at_once"], largest)
    yield at_once(ranks, "moved_at_once", AT_ONCE_CELLS, usual["moved_at_once"], largest)

    chunks = [
        (usual["least_chunk"] >> shift, usual["most_chunk"] >> shift)
        if shift >= 0
        else (usual["least_chunk"] << -shift, usual["most_chunk"] << -shift)
        for shift in (0, 1, -1, -2)
    ]
    large = (256 * KIB, MIB, 4 * MIB, 16 * MIB)
    yield Values(
        "least_chunk most_chunk",
        tuple(f"{size_text(least)} {size_text(most)}" for least, most in chunks),
        (*cells_of(["allreduce"], large), *cells_of(["allgather", "broadcast"], (MIB, 8 * MIB))),
        tuple(shared(ranks, least_chunk=least, most_chunk=most) for least, most in chunks),
    )

    rings = [usual["ring"], usual["ring"] // 2, usual["ring"] * 2, usual["ring"] * 4]
    yield Values(
        "ring",
        tuple(map(size_text, rings)),
        (*cells_of(["allreduce", "allgather"], (64 * KIB, MIB, 8 * MIB)), Cell("alltoall", MIB)),
        tuple(shared(ranks, ring=ring) for ring in rings),
    )

    sizes = doubling(MIB, 16 * MIB)
    yield Cut(
        "past_caches_from",
        usual["past_caches_from"],
        sizes,
        cells_of(["allreduce", "allgather"], sizes),
        (shared(ranks, past_caches_from="inf"), shared(ranks, past_caches_from=0)),
    )
    yield Cut(
        "private_from",
        usual["private_from"],
        sizes,
        cells_of(["allgather", "alltoall"], sizes),
        (shared(ranks, private_from="inf"), shared(ranks, private_from="64k")),
    )
    if ranks <= MOST_RANKS_WITH_HEAP:
        yield Cut(
            "in_place_from",
            usual["in_place_from"],
            sizes,
            cells_of(["allreduce", "broadcast"], sizes, in_heap=True),
            (shared(ranks, in_place_from="inf"), shared(ranks, in_place_from=0)),
        )


def over_tcp(ranks: int) -> Iterator[Experiment]:
    """Yields the experiments for the rows of csrc/tuning/selection.cc that apply on one host."""
    doubles, rings = (World("tcp", tune=f"allreduce:0-inf:{name}") for name in
                      ("recursive_doubling", "ring:chunk=0"))  # fmt: skip
    chunked = World("tcp", tune=f"allreduce:0-inf:ring:chunk={CACHED}")
    sizes = doubling(4 * KIB, MIB)
    to_ring, to_chunks = usual_tcp_cuts(ranks)
    yield Cut("tcp ring", to_ring, sizes, cells_of(["allreduce"], sizes), (doubles, rings))
    sizes = doubling(MIB, 16 * MIB)
    yield Cut("tcp chunks", to_chunks, sizes, cells_of(["allreduce"], sizes), (rings, chunked))


def experiments(ranks: int) -> list[Experiment]:
    """Returns all experiments, in the order of their execution."""
    return [*over_shared_memory(ranks), *over_tcp(ranks)]


def together(ranks: int, limits: Sequence[tuple[str, str]]) -> Values:
    """Returns an experiment with all separately found limits."""
    return Values(
        "all of these",
        ("defaults", "profile"),
        (
            *cells_of(["allreduce"], (16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB)),
            *cells_of(["allgather", "broadcast"], (64 * KIB, MIB, 8 * MIB)),
        ),
        (shared(ranks), shared(ranks, **dict(limits))),
    )


def usual_tcp_cuts(ranks: int) -> tuple[int, int]:
    """Returns the default sizes from which arrays use the ring, and from which it sends chunks."""
    return (32 * KIB, 4 * MIB) if ranks == 2 else (16 * KIB, 16 * MIB)


def tcp_rows(ranks: int, to_ring: str | None, to_chunks: str | None) -> str:
    """Returns the selection rows for one host, with one or both sizes changed."""
    usual = usual_tcp_cuts(ranks)
    ring, chunks = to_ring or size_text(usual[0]), to_chunks or size_text(usual[1])
    return (
        f"allreduce:0-{ring}:recursive_doubling;"
        f"allreduce:{ring}-{chunks}:ring:chunk=0;"
        f"allreduce:{chunks}-inf:ring:chunk={CACHED}"
    )
