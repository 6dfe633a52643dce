"""Ranks that have ended well while others may wait for them in init(): the store in which they meet says so."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

from pycollective.launching.child import Child

TOGETHER_S = 0.2  # how long after the first that ends well others may
ENDED_WELL = (
    "has ended (exit code 0) without joining this world, which cannot come about. Does each rank call init() as often "
    "as the others, or does a condition lead one around it?"
)


def report_absent(ended: Sequence[Child], report: Callable[[Sequence[int], str], None]) -> None:
    """Takes long, as long as a store may take to answer. A rank whose processes have not all ended is not absent."""
    elsewhere = groups_with_others()
    if ranks := [each.rank for each in ended if each.group not in elsewhere]:
        report(ranks, ENDED_WELL)


def groups_with_others() -> set[int]:
    """The process groups that hold more than their first process: a shell may have put its rank there, and ended."""
    groups = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                stat = (entry / "stat").read_bytes()  # a process may call itself anything
                group = int(stat.rpartition(b")")[2].split()[2])  # after state and parent
                if group != int(entry.name):
                    groups.add(group)
    return groups
