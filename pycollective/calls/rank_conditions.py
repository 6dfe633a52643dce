"""Which of a failed call's lines stand under a condition on the rank: `if rank == 0:` around a collective.

The error says what each rank called and where; this says why one of them may have been the only one. For errors alone:
it reads the sources.
"""

from __future__ import annotations

import ast
import linecache
import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import TypeAlias

__all__ = ["advice"]

# Names that ask after the rank, as whole words: `lora_rank`, `matrix_rank` and `ranks` ask after something else.
OF = "local|global|node|world|my|own|this|current|group|mpi|ddp|dp|tp|pp|cp|ep|data|tensor|pipeline|model|parallel"
ASKS = re.compile(
    rf"(?:get_)?(?:(?:{OF})_)*rank|myrank|(?:is_)?rank_?(?:zero|0)|(?:is_)?(?:local_)?(?:main|master)(?:_process|_rank)?"
    r"|is_(?:first|last)_rank|is_global_zero|process_index",
    re.IGNORECASE,
)
VARIABLE = re.compile(r"(?:[A-Z0-9]+_)*(?:WORLD|PMIX?|LOCAL|GLOBAL|NODE|GROUP|MPI)_RANK|RANK|SLURM_PROCID")
SITE = re.compile(r"(?:at|from) ([^\s:]+):(\d+) in ")
RANK = re.compile(r"\brank (\d+) \(")  # begins what a message says of one of the ranks
BEFORE = re.compile(r"its last completed collective is [^;]*")  # where a rank was, and is no more
INSTALLED = (os.path.dirname(os.path.dirname(__file__)) + "/", os.path.dirname(os.__file__) + "/")


Site: TypeAlias = tuple[str, int]  # a file and a line


@dataclass(frozen=True)
class Branch:
    """The lines that run only if a condition about ranks holds, or only if it does not."""

    file: str
    first: int
    last: int
    condition: str

    def has_one_of(self, sites: Iterable[Site]) -> bool:
        return any(name == self.file and self.first <= line <= self.last for name, line in sites)


def advice(message: str) -> str:
    """What to add to the message of a collective's CollectiveTimeout or CollectiveMismatch; mostly nothing."""
    own = list(_own_lines())
    others = _sites_of_ranks(message)
    everybody = [[(_short(file), line) for file, line in own], *others] if others else []
    found: dict[str, None] = {}
    for file, line in [*own, *_lines_in(message)]:
        for branch in _branches(file, line):
            if not everybody or not all(map(branch.has_one_of, everybody)):  # else all ranks came through it
                found[f"{branch.file}:{line} stands under {branch.condition}"] = None
                break
    if not found:
        return ""
    return f". {'; '.join(found)}: a collective needs all ranks of its group, so do they all come there?"


def _sites_of_ranks(message: str) -> list[set[Site]]:
    """Of each rank that the message tells something of: where it stands."""
    _, *told = RANK.split(BEFORE.sub("", message))
    sites: defaultdict[str, set[Site]] = defaultdict(set)
    for rank, text in zip(told[::2], told[1::2], strict=True):
        sites[rank].update((name, int(line)) for name, line in SITE.findall(text))
    return list(sites.values())


def _own_lines() -> Iterator[Site]:
    """Of the program in this thread, the innermost first."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(INSTALLED) and "-packages/" not in file:
            yield file, frame.f_lineno
        frame = frame.f_back


def _lines_in(message: str) -> Iterator[Site]:
    """Of the other ranks, which mostly run the same files: the message has the last two parts of their names."""
    sites = SITE.findall(message)
    files = {file for module in list(sys.modules.values()) if (file := getattr(module, "__file__", None))}
    for name, line in sites:
        for file in files:
            if _short(file) == name:
                yield file, int(line)


def _short(file: str) -> str:
    return "/".join(file.split("/")[-2:])


def _branches(file: str, line: int) -> list[Branch]:
    """Of each `if` or `while` about ranks in whose branches this line is, the innermost first."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return []
    found: list[Branch] = []
    for node in ast.walk(tree):  # outer ones come first
        if not isinstance(node, ast.If | ast.While | ast.IfExp) or not _asks(node.test):
            continue
        for part in (node.body, node.orelse):
            lines = part if isinstance(part, list) else [part]
            if not lines:
                continue
            first, last = lines[0].lineno, max(each.end_lineno or each.lineno for each in lines)
            if first <= line <= last:
                word = "while" if isinstance(node, ast.While) else "if"
                condition = f"`{word} {ast.unparse(node.test)}` (line {node.lineno})"
                found.append(Branch(_short(file), first, last, condition))
                break
    return found[::-1]


def _asks(condition: ast.expr) -> bool:
    """Whether it depends on the rank, as far as its names tell."""
    for node in ast.walk(condition):
        if isinstance(node, ast.Name | ast.Attribute):
            if ASKS.fullmatch(node.id if isinstance(node, ast.Name) else node.attr):
                return True
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and VARIABLE.fullmatch(node.value)
        ):
            return True
    return False
