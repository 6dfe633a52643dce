"""From times to settings.

A default stays unless another value is clearly better: by more than 5 % on average over the sizes that it changes, and
by more than what it differs in from one pass to another.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pycollective.tools.tune.experiments import Cut, Values, size_text

LEAST_GAIN = math.log(1.05)
FEWEST_PASSES, FEWEST_ROUNDS = 3, 5

Times = list[list[float]]  # of one round: seconds, by cell and world
Passes = list[list[Times]]  # each with worlds of its own, at another time


@dataclass(frozen=True)
class Finding:
    """What came of one experiment. Gains are natural logarithms: 0.05 is 5 % faster."""

    name: str
    default: str
    best: str  # the default, if nothing was better
    gain: float  # of the best other value, adopted or not; the median of all passes
    spread: float  # of that gain: between the quartiles of the passes; of three, between the ends
    rounds: int

    @property
    def is_better(self) -> bool:
        """Whether a profile should say so."""
        return self.best != self.default


def gains_of(passes: Passes, gain: Callable[[Times], float]) -> list[float]:
    """The median of each pass. A round may be disturbed, and so may a pass: by what its worlds have settled for."""
    return [statistics.median(gain(times) for times in rounds) for rounds in passes]


def finding(name: str, default: str, other: str, gains: Sequence[float], rounds: int) -> Finding:
    """About the best value besides the default."""
    gain, spread = statistics.median(gains), math.inf
    if len(gains) > 1:
        low, _, high = statistics.quantiles(gains, n=4)
        spread = high - low
    is_clear = len(gains) >= FEWEST_PASSES and rounds >= FEWEST_ROUNDS and gain > LEAST_GAIN and spread < gain
    return Finding(name, default, other if is_clear else default, gain, spread, rounds)


def best_value(what: Values, passes: Passes) -> Finding:
    """By the mean over all cells."""

    def gains(world: int) -> list[float]:
        return gains_of(
            passes, lambda times: statistics.fmean(math.log(cell[0] / cell[world]) for cell in times)
        )

    best = max(range(1, len(what.values)), key=lambda world: statistics.median(gains(world)))
    return finding(what.name, what.values[0], what.values[best], gains(best), sum(map(len, passes)))


def setting(what: Cut, first: int) -> str:
    """Where `first` is the first size of the second way."""
    return size_text(first // 2 if what.inclusive else first)


def best_cut(what: Cut, passes: Passes) -> Finding:
    """Where to change from the first way to the second: what counts are the sizes that would go the other way."""
    per_size = len(what.cells) // len(what.sizes)
    ends = [*what.sizes, 2 * what.sizes[-1]]  # beyond the last nothing was measured
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
    """What the experiment says."""
    return best_cut(what, passes) if isinstance(what, Cut) else best_value(what, passes)
