"""Measures the round-trip time of a small message between every two ranks."""

from __future__ import annotations

import statistics
import time

import numpy as np

PINGS, PAIR_S, ALL_S = 20, 0.05, 2.0
WIDEST = 16  # most ranks for which the matrix is printed


def partner(rank: int, round_number: int, size: int) -> int | None:
    """Returns a rank's partner in a round of a round-robin tournament, or None.

    Each pair occurs once in `size` rounds (size - 1 if `size` is even).
    """
    # with an odd number of ranks one slot is empty, and the rank that is paired with it idles
    slots = size + size % 2
    last = slots - 1
    if rank == last:
        other = round_number * (slots // 2) % last
    else:
        other = (round_number - rank) % last
        other = last if other == rank else other
    return other if other < size else None


def measure() -> dict[int, float]:
    """Returns the round-trip seconds to each higher rank. All ranks must call this together.

    The measurement takes at most ALL_S plus one round.
    """
    import pycollective as pc

    begin = time.monotonic()
    found: dict[int, float] = {}
    more = np.ones(1, np.uint8)
    for round_number in range(pc.size() + pc.size() % 2 - 1):
        more[0] = time.monotonic() - begin < ALL_S
        if not pc.broadcast(more)[0]:  # rank 0 decides for all ranks by its clock
            break
        other = partner(pc.rank(), round_number, pc.size())
        if other is None:
            continue
        if pc.rank() < other:
            found[other] = _ping(other)
        else:
            _pong(other)
    return found


def _ping(peer: int) -> float:
    import pycollective as pc

    seconds: list[float] = []
    message = np.ones(8, np.uint8)
    end = time.monotonic() + PAIR_S
    while message[0]:
        begin = time.monotonic()
        message[0] = len(seconds) + 1 < PINGS and begin < end  # 0 marks the last message
        pc.send(message, peer)
        pc.recv(message, peer)
        seconds.append(time.monotonic() - begin)
    return statistics.median(seconds)


def _pong(peer: int) -> None:
    import pycollective as pc

    message = np.ones(8, np.uint8)
    while message[0]:
        pc.recv(message, peer)
        pc.send(message, peer)


def table(found: list[dict[int, float]]) -> str:
    """Returns a summary, and a matrix if there are at most WIDEST ranks.

    `found[a][b]` is the time between ranks a < b.
    """
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
