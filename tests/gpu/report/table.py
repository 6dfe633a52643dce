"""All checks in one table, for a terminal and as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from . import requirements
from .check import Check

WIDEST_NAME = 78


def summary(checks: Sequence[Check]) -> str:
    counts = Counter(each.outcome for each in checks)
    return ", ".join(
        f"{counts[how]} {how}" for how in ("passed", "failed", "skipped", "figure") if counts[how]
    )


def text(machine: Sequence[str], checks: Sequence[Check]) -> str:
    part_width = max((len(each.part) for each in checks), default=0)
    name_width = min(WIDEST_NAME, max((len(each.name) for each in checks), default=0))
    lines = [*machine, ""]
    lines += [
        f"{each.part:{part_width}}  {each.name:{name_width}}  {each.outcome:7}  {each.said}".rstrip()
        for each in checks
    ]
    return "\n".join([*lines, "", summary(checks), ""])


def markdown(machine: Sequence[str], checks: Sequence[Check]) -> str:
    def cell(words: str) -> str:
        return words.replace("|", "\\|")

    rows = [
        f"| {cell(each.part)} | {cell(each.name)} | {each.outcome} | {cell(each.said)} |" for each in checks
    ]
    head = ["| Part | Check | | |", "|---|---|---|---|"]
    notes = [f"- {line}" for line in machine]
    return "\n".join([*notes, "", requirements.markdown(checks), *head, *rows, "", summary(checks), ""])
