"""Bars: what is counted or measured over many trials, and the limit that it must not pass."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

SHOWN_CHARACTERS = 6000
SHOWN_SLOW = 5
PER_UNIT = {"ms": 1000.0, "KiB": 1.0}  # shown for what is measured in seconds, or in KiB


@dataclass(frozen=True)
class Bar:
    """`statistic` is "count" for faults, which fail their bar when there are more than `limit`, else "max" or "p99"."""

    name: str
    key: str
    limit: float = 0
    statistic: str = "count"
    unit: str = "ms"

    def shown(self, value: float) -> str:
        return f"{PER_UNIT[self.unit] * value:.0f}"


@dataclass(frozen=True)
class Trial:
    """One thing that is made to go wrong. `run` reports to the ledger and leaves nothing behind."""

    name: str
    run: Callable[[Ledger], None]


class Ledger:
    """What the trials of one family have found."""

    def __init__(self, rerun: str) -> None:
        self.rerun = rerun  # the command that runs one trial alone, with a place for its name
        self.trial = ""
        self.trials = 0
        self.faults: dict[str, int] = defaultdict(int)
        self.measured: dict[str, list[tuple[float, str]]] = defaultdict(list)  # what, and in which trial

    def begin(self, trial: str) -> None:
        self.trial = trial
        self.trials += 1

    def measure(self, key: str, value: float) -> None:
        """Seconds, or what the bar's unit says."""
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


def judge(bar: Bar, ledger: Ledger) -> tuple[str, str, bool]:
    """The limit and what was measured, in words, and whether the bar holds. What was never measured does not hold."""
    if bar.statistic == "count":
        count = ledger.faults[bar.key]
        return f"{bar.limit:g}", f"{count} of {ledger.trials}", count <= bar.limit
    values = [value for value, _ in ledger.measured[bar.key]]
    limit = f"< {bar.shown(bar.limit)} {bar.unit}"
    if not values:
        return limit, "not measured", False
    value = max(values) if bar.statistic == "max" else percentile(values, 0.99)
    median = percentile(values, 0.5)
    text = f"{bar.shown(value)} {bar.unit} ({bar.statistic} of {len(values)}; median {bar.shown(median)}"
    if bar.statistic != "max":
        text += f", max {bar.shown(max(values))}"
    return limit, text + ")", value < bar.limit


def print_slow(bar: Bar, ledger: Ledger) -> None:
    """The slowest trials of those beyond the bar's limit."""
    if bar.statistic == "count":
        return
    for value, trial in sorted(ledger.measured[bar.key], reverse=True)[:SHOWN_SLOW]:
        if value >= bar.limit:
            shown = f"{bar.shown(value)} {bar.unit}"
            print(f"SLOW [{bar.key}] {shown}: {ledger.rerun.format(trial)}", flush=True)


def print_table(rows: list[tuple[str, str, str, str, str]]) -> None:
    lines = [("family", "bar", "limit", "measured", "ok"), *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(5)]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
