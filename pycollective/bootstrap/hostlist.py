"""Slurm's short forms: host lists ("n[0-1],gpu[001-003,007]") and tasks per node ("2(x3),1")."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pycollective.errors import InvalidArgument

MOST = 100_000  # hosts; a longer list is treated as an error
_PART = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_TASKS = re.compile(r"(\d+)(?:\(x(\d+)\))?")


def expand(text: str) -> list[str]:
    """Return the names in order. Leading zeros are kept: gpu[008-010] is gpu008, gpu009, gpu010."""
    parts = _PART.findall(text)
    if not parts or ",".join(parts) != text:
        raise malformed("host list", text)
    names = [name for part in parts for name in names_of(part, text)]
    if len(names) > MOST:
        raise malformed("host list", text)
    return names


def names_of(part: str, text: str) -> Iterator[str]:
    before, bracket, rest = part.partition("[")
    if not bracket:
        yield before
        return
    inside, _, after = rest.partition("]")
    tails = list(names_of(after, text)) if after else [""]
    for piece in inside.split(","):
        found = _RANGE.fullmatch(piece)
        if found is None:
            raise malformed("host list", text)
        first, last = found[1], found[2] or found[1]
        if not 0 <= int(last) - int(first) < MOST:
            raise malformed("host list", text)
        for number in range(int(first), int(last) + 1):
            for tail in tails:
                yield f"{before}{number:0{len(first)}d}{tail}"


def tasks_per_node(text: str) -> list[int]:
    """Return the number of tasks of each node, in the order of the host list."""
    counts: list[int] = []
    for piece in text.split(","):
        found = _TASKS.fullmatch(piece)
        if found is None or int(found[2] or 1) > MOST:
            raise malformed("number of tasks per node", text)
        counts += [int(found[1])] * int(found[2] or 1)
    return counts


def malformed(what: str, text: str) -> InvalidArgument:
    return InvalidArgument(f"{text!r} is not a {what} as Slurm writes it")
