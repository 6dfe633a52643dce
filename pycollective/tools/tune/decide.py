"""Derives settings from times.

A default stays unless another value is clearly better: by more than 5 % on average over the sizes
that it changes, and by more than the difference between passes.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pycollective.tools.tune.experiments import Cut, Values, size_text

LEAST_GAIN = math.log(1.05)
FEWEST_PASSES, FEWEST_ROUNDS = 3, 5

Times = list[list[float]]  # the times of one round in seconds, by cell and world
Passes = list[list[Times]]  # rounds, by pass; each pass has new worlds and is made at another time


@dataclass(frozen=True)
class Finding:
    """The result of one experiment. Gains are natural logarithms: 0.05 is 5 % faster."""

    name: str
    default: str
    best: str  # the best value; the default if no other value is clearly better
    gain: float  # of the best value except the default, even if not adopted: the median over the passes
    # Difference between the upper and lower quartile of that gain over the passes; with three
    # passes, between the largest and the smallest gain.
    spread: float
    rounds: int

    @property
    def is_better(self) -> bool:
        """Whether the profile should contain `best`."""
        return self.best != self.default


def gains_of(passes: Passes, gain: Callable[[Times], float]) -> list[float]:
    """Returns the median of the gain over the rounds of each pass.

    Medians are used because a round may be disturbed. Passes are kept apart because their worlds
    may settle differently.
    """
    return [statistics.median(gain(times) for times in rounds) for rounds in passes]


def finding(name: str, default: str, other: str, gains: Sequence[float], rounds: int) -> Finding:
    """Returns the finding for the best value other than the default, given its gains by pass."""
    gain, spread = statistics.median(gains), math.inf
    if len(gains) > 1:
        low, _, high = statistics.quantiles(gains, n=4)
        spread = high - low
    is_clear = len(gains) >= FEWEST_PASSES and rounds >= FEWEST_ROUNDS and gain > LEAST_GAIN and spread < gain
    return Finding(name, default, other if is_clear else default, gain, spread, rounds)


def best_value(what: Values, passes: Passes) -> Finding:
    """Finds the best value, by the mean gain over all cells."""

    def gains(world: int) -> list[float]:
        return gains_of(
            passes, lambda times: statistics.fmean(math.log(cell[0] / cell[world]) for cell in times)
        )

    best = max(range(1, len(what.values)), key=lambda world: statistics.median(gains(world)))
    return finding(what.name, what.values[0], what.values[best], gains(best), sum(map(len, passes)))


def setting(what: Cut, first: int) -> str:
    """Returns the setting by which the second algorithm is used from size `first` on."""
    return size_text(first // 2 if what.inclusive else first)


def best_cut(what: Cut, passes: Passes) -> Finding:
    """Finds the best size from which to use the second algorithm.

    Only the sizes count for which the algorithm would differ from the default.
    """
    per_size = len(what.cells) // len(what.sizes)
    ends = [*what.sizes, 2 * what.sizes[-1]]  # the last end: the second algorithm is used at no measured size
    default = ends.index(what.default)

    def second_is_faster(times: Times, size: int) -> float:
        cells = times[size * per_size : (size + 1) * per_size]
        return statistics.fmean(math.log(first / second) for first, second in cells)

    def gains(cut: int) -> list[float]:
        changed = range(min(cut, default), max(cut, default))
        sign = 1 if cut < default else -1
        return gains_of(
            passes, lambda times: sign * statistics.fmean(second_is_faster(times, size) for size in changed)
        )

    others = [cut for cut in range(len(ends)) if cut != default]
    best = max(others, key=lambda cut: statistics.median(gains(cut)) * abs(cut - default))
    return finding(
        what.name, setting(what, what.default), setting(what, ends[best]), gains(best), sum(map(len, passes))
    )


def decide(what: Cut | Values, passes: Passes) -> Finding:
    """Returns the finding of an experiment from its passes."""
    return best_cut(what, passes) if isinstance(what, Cut) else best_value(what, passes)
