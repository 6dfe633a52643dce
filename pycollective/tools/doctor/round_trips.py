"""How long a small message takes there and back, between every two ranks."""

from __future__ import annotations

import statistics
import time

import numpy as np

PINGS, PAIR_S, ALL_S = 20, 0.05, 2.0
WIDEST = 16  # ranks of which the whole table is shown


def partner(rank: int, turn: int, size: int) -> int | None:
    """With whom a rank plays in a turn. In size turns (size - 1 if it is even) every two meet once."""
    seats = size + size % 2  # with an odd number, who meets the seat that nobody has rests
    last = seats - 1
    if rank == last:
        other = turn * (seats // 2) % last
    else:
        other = (turn - rank) % last
        other = last if other == rank else other
    return other if other < size else None


def measure() -> dict[int, float]:
    """Seconds to each rank with a higher number. All ranks call it together; it takes ALL_S at most, and one turn."""
    import pycollective as pc

    begin = time.monotonic()
    found: dict[int, float] = {}
    more = np.ones(1, np.uint8)
    for turn in range(pc.size() + pc.size() % 2 - 1):
        more[0] = time.monotonic() - begin < ALL_S
        if not pc.broadcast(more)[0]:  # rank 0's clock counts
            break
        other = partner(pc.rank(), turn, pc.size())
        if other is None:
            continue
        if pc.rank() < other:
            found[other] = _ask(other)
        else:
            _answer(other)
    return found


def _ask(peer: int) -> float:
    import pycollective as pc

    seconds: list[float] = []
    ball = np.ones(8, np.uint8)
    end = time.monotonic() + PAIR_S
    while ball[0]:
        begin = time.monotonic()
        ball[0] = len(seconds) + 1 < PINGS and begin < end  # 0: the last one
        pc.send(ball, peer)
        pc.recv(ball, peer)
        seconds.append(time.monotonic() - begin)
    return statistics.median(seconds)


def _answer(peer: int) -> None:
    import pycollective as pc

    ball = np.ones(8, np.uint8)
    while ball[0]:
        pc.recv(ball, peer)
        pc.send(ball, peer)


def table(found: list[dict[int, float]]) -> str:
    """In words, and as a matrix if that is not too wide. `found[a][b]` belongs to ranks a < b."""
    pairs = {(a, b): seconds for a, row in enumerate(found) for b, seconds in row.items()}
    size = len(found)
    if not pairs:
        return "none measured"
    (a, b), (c, d) = min(pairs, key=pairs.__getitem__), max(pairs, key=pairs.__getitem__)
    words = f"{pairs[a, b] * 1e6:.0f} us (ranks {a} and {b})"
    if len(pairs) > 1:
        words += f" to {pairs[c, d] * 1e6:.0f} us (ranks {c} and {d})"
    if len(pairs) < size * (size - 1) // 2:
        words += f"; {len(pairs)} pairs of {size * (size - 1) // 2} in {ALL_S:g} s"
    if size > WIDEST:
        return words
    rows = ["us" + "".join(f"{rank:>8}" for rank in range(size))]
    for rank in range(size):
        cells = [pairs.get((min(rank, other), max(rank, other))) for other in range(size)]
        rows.append(f"{rank:>2}" + "".join("       -" if s is None else f"{s * 1e6:>8.1f}" for s in cells))
    return "\n".join([words, *rows])
