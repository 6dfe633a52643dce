"""Computes the durations of calls from the times at which ranks finished, and rows from rounds."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pycollective.tools.compare.collectives import COLLECTIVES


@dataclass(frozen=True)
class Figures:
    """The results of one cell in one launch, in seconds."""

    median_s: float
    p99_s: float
    iterations: int
    right: bool


@dataclass(frozen=True)
class Row:
    """The results of one cell of one library, with the spread of the medians of all rounds."""

    collective: str
    nbytes: int
    peer: str
    median_s: float
    lowest_s: float
    highest_s: float
    p99_s: float
    rounds: int
    iterations: int
    right: bool

    def as_json(self, ranks: int) -> dict[str, Any]:
        """Returns the fields and the bus bandwidth, which is 0 for a size of 0."""
        values = asdict(self)
        values["busbw"] = COLLECTIVES[self.collective].bus_factor(ranks) * self.nbytes / self.median_s / 1e9
        return values


def merge(ranks: Sequence[Sequence[dict[str, Any] | None]]) -> list[Figures | None]:
    """Merges the times of all ranks for each cell; None if a library lacks the collective.

    A call ends when the slowest rank has finished it. Its duration begins at the end of the
    previous call.
    """
    merged: list[Figures | None] = []
    for of_all in zip(*ranks, strict=True):
        known = [each for each in of_all if each is not None]
        merged.append(_figures(known) if len(known) == len(of_all) else None)
    return merged


def _figures(ranks: Sequence[dict[str, Any]]) -> Figures:
    done = [max(ends) for ends in zip(*(each["ends"] for each in ranks), strict=True)]
    trips = ranks[0]["trips"]
    seconds = sorted((after - before) / 1e9 / trips for before, after in itertools.pairwise(done))
    return Figures(
        statistics.median(seconds),
        percentile(seconds, 0.99),
        len(seconds),
        all(each["right"] for each in ranks),
    )


def percentile(ordered: Sequence[float], share: float) -> float:
    """Returns a percentile (nearest-rank). Of fewer than 100 values, the 99th is the maximum."""
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def row(collective: str, nbytes: int, peer: str, rounds: Sequence[Figures]) -> Row:
    """Returns the medians over the rounds. There must be at least one round."""
    medians = [each.median_s for each in rounds]
    return Row(
        collective,
        nbytes,
        peer,
        statistics.median(medians),
        min(medians),
        max(medians),
        statistics.median(each.p99_s for each in rounds),
        len(rounds),
        sum(each.iterations for each in rounds),
        all(each.right for each in rounds),
    )


def ratio(rows: Sequence[Row], ours: str) -> float | None:
    """Returns the median of `ours` divided by the best peer's, or None if either is missing."""
    own = [each.median_s for each in rows if each.peer == ours]
    others = [each.median_s for each in rows if each.peer != ours]
    return own[0] / min(others) if own and others else None
