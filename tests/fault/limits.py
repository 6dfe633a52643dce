"""Limits of what is counted or measured over many trials."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

SHOWN_CHARACTERS = 6000
SHOWN_SLOW = 5
# the factor of the unit shown, for what is measured in seconds or in KiB
PER_UNIT = {"ms": 1000.0, "KiB": 1.0}


@dataclass(frozen=True)
class Limit:
    """`statistic` is "count" for faults, of which `bound` may occur, else "max" or "p99"."""

    name: str
    key: str
    bound: float = 0
    statistic: str = "count"
    unit: str = "ms"

    def shown(self, value: float) -> str:
        return f"{PER_UNIT[self.unit] * value:.0f}"


@dataclass(frozen=True)
class Trial:
    """One fault that is injected. `run` reports to the ledger and leaves nothing behind."""

    name: str
    run: Callable[[Ledger], None]


class Ledger:
    """What the trials of one family have found."""

    def __init__(self, rerun: str) -> None:
        self.rerun = rerun  # the command that runs one trial alone, with a placeholder for its name
        self.trial = ""
        self.trials = 0
        self.faults: dict[str, int] = defaultdict(int)
        self.measured: dict[str, list[tuple[float, str]]] = defaultdict(list)  # each value and its trial

    def begin(self, trial: str) -> None:
        self.trial = trial
        self.trials += 1

    def measure(self, key: str, value: float) -> None:
        """Records a value in seconds, or in the limit's unit."""
        self.measured[key].append((value, self.trial))

    def fault(self, key: str, what: str) -> None:
        self.faults[key] += 1
        text = what if len(what) <= SHOWN_CHARACTERS else what[:SHOWN_CHARACTERS] + " ..."
        print(f"\nFAULT [{key}] {self.trial}\n  {text.rstrip()}".replace("\n", "\n  "), flush=True)
        print(f"  alone: {self.rerun.format(self.trial)}", flush=True)

    def require(self, key: str, holds: object, what: str) -> None:
        if not holds:
            self.fault(key, what)


def percentile(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def judge(limit: Limit, ledger: Ledger) -> tuple[str, str, bool]:
    """Returns the bound and the measured value as text, and whether the limit holds.

    A limit that was never measured does not hold.
    """
    if limit.statistic == "count":
        count = ledger.faults[limit.key]
        return f"{limit.bound:g}", f"{count} of {ledger.trials}", count <= limit.bound
    values = [value for value, _ in ledger.measured[limit.key]]
    bound = f"< {limit.shown(limit.bound)} {limit.unit}"
    if not values:
        return bound, "not measured", False
    value = max(values) if limit.statistic == "max" else percentile(values, 0.99)
    median = percentile(values, 0.5)
    text = (
        f"{limit.shown(value)} {limit.unit} ({limit.statistic} of {len(values)}; median {limit.shown(median)}"
    )
    if limit.statistic != "max":
        text += f", max {limit.shown(max(values))}"
    return bound, text + ")", value < limit.bound


def print_slow(limit: Limit, ledger: Ledger) -> None:
    """Prints the slowest trials of those beyond the bound."""
    if limit.statistic == "count":
        return
    for value, trial in sorted(ledger.measured[limit.key], reverse=True)[:SHOWN_SLOW]:
        if value >= limit.bound:
            shown = f"{limit.shown(value)} {limit.unit}"
            print(f"SLOW [{limit.key}] {shown}: {ledger.rerun.format(trial)}", flush=True)


def print_table(rows: list[tuple[str, str, str, str, str]]) -> None:
    lines = [("family", "limit", "bound", "measured", "ok"), *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(5)]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
