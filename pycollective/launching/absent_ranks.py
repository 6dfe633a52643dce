"""Reports ranks that ended successfully, because other ranks may wait for them in init().

The report goes through the store that the ranks use to connect.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

from pycollective.launching.child import Child

TOGETHER_S = 0.2  # ranks that end within this time after the first one are reported together
ENDED_WELL = (
    "has ended (exit code 0) without joining this world, which cannot come about. Does each rank call init() as often "
    "as the others, or does a condition lead one around it?"
)


def report_absent(ended: Sequence[Child], report: Callable[[Sequence[int], str], None]) -> None:
    """Report ranks that have ended. This may block until the store answers.

    A rank is reported only if no other process of its process group is left.
    """
    elsewhere = groups_with_others()
    if ranks := [each.rank for each in ended if each.group not in elsewhere]:
        report(ranks, ENDED_WELL)


def groups_with_others() -> set[int]:
    """Return the process groups that have a process besides their first one.

    The first process may be a shell that has started the rank in its group and ended.
    """
    groups = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                # bytes, because the name of a process need not be valid text
                stat = (entry / "stat").read_bytes()
                group = int(stat.rpartition(b")")[2].split()[2])  # the fields before it are state and parent
                if group != int(entry.name):
                    groups.add(group)
    return groups
