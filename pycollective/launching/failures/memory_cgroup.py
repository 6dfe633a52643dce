"""Counters of this process's memory cgroup, e.g. of processes killed for lack of memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

UNLIMITED = 1 << 60  # limits from here on mean none: version 1 has a huge number instead of "max"
KILLS = "oom_kill"


@dataclass(frozen=True)
class Counts:
    """The counters of a memory cgroup. `events` has all counters of `file`, such as `oom_kill`."""

    file: Path
    events: dict[str, int]
    limit: int | None


def read(root: Path = Path("/")) -> Counts | None:
    """Read the innermost visible memory cgroup that has counters, of version 2 or 1.

    Returns None if there is none.
    """
    for folder in _folders(root):
        for name in ("memory.events", "memory.oom_control"):
            events = dict(_numbers(folder / name))
            if KILLS in events:
                return Counts(folder / name, events, _limit(folder))
    return None


def _folders(root: Path) -> Iterator[Path]:
    """Yield the folders of this process's cgroups, the innermost first.

    The topmost folder is included, because a container may see its own cgroup there, whatever path
    /proc/self/cgroup has.
    """
    top = root / "sys/fs/cgroup"
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        parts = [part for part in path.split("/") if part]
        for levels in range(len(parts), -1, -1):
            yield (top / "memory" if controllers else top).joinpath(*parts[:levels])


def _numbers(file: Path) -> Iterator[tuple[str, int]]:
    for line in _lines(file):
        name, _, number = line.partition(" ")
        if number.strip().isdecimal():
            yield name, int(number)


def _limit(folder: Path) -> int | None:
    for name in ("memory.max", "memory.limit_in_bytes"):
        for word in _lines(folder / name):
            if word.isdecimal() and int(word) < UNLIMITED:
                return int(word)
    return None


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []


def hint(before: Counts | None, now: Counts | None) -> str:
    """Return why SIGKILL may have ended a process, from the cgroup's counts since `before`."""
    first = (
        "The kernel sends SIGKILL when memory runs out, batch systems at the end of a job, users by `kill -9`"
    )
    if now is None:
        return f"{first}. No memory cgroup can be read here; `dmesg | grep -i oom` says whether it was the kernel"
    started_with = before.events.get(KILLS, 0) if before is not None and before.file == now.file else 0
    kills = now.events[KILLS] - started_with
    counted = ", ".join(f"{name} {number}" for name, number in now.events.items())
    limit = "no limit" if now.limit is None else f"limit {now.limit / (1 << 30):.3g} GiB"
    said = f"{now.file} ({limit}) counts {counted}"
    if kills > 0:
        return (
            f"It was killed because memory ran out, most probably: {said}; {kills} of oom_kill since the start. Use "
            f"less memory on each rank, start fewer ranks, or raise the limit of the memory cgroup"
        )
    return f"{first}. {said}; none of oom_kill since the start, so the memory cgroup was not the reason"
