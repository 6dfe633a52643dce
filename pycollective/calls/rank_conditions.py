"""Finds conditions on the rank, such as `if rank == 0:`, under which a failed call was made.

The error says what each rank called and where. This module explains why some ranks may not have
made the call. It is used only for errors, because it reads the sources.
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

# Names that refer to the rank, as whole words: `lora_rank`, `matrix_rank` and `ranks` mean
# something else.
OF = "local|global|node|world|my|own|this|current|group|mpi|ddp|dp|tp|pp|cp|ep|data|tensor|pipeline|model|parallel"
ASKS = re.compile(
    rf"(?:get_)?(?:(?:{OF})_)*rank|myrank|(?:is_)?rank_?(?:zero|0)|(?:is_)?(?:local_)?(?:main|master)(?:_process|_rank)?"
    r"|is_(?:first|last)_rank|is_global_zero|process_index",
    re.IGNORECASE,
)
VARIABLE = re.compile(r"(?:[A-Z0-9]+_)*(?:WORLD|PMIX?|LOCAL|GLOBAL|NODE|GROUP|MPI)_RANK|RANK|SLURM_PROCID")
SITE = re.compile(r"(?:at|from) ([^\s:]+):(\d+) in ")
RANK = re.compile(r"\brank (\d+) \(")  # starts the part of a message about a rank
BEFORE = re.compile(r"its last completed collective is [^;]*")  # an earlier position, which is ignored
MOST_CHARACTERS = 1_000_000  # a larger source is a generated one, and takes a second to parse
INSTALLED = (os.path.dirname(os.path.dirname(__file__)) + "/", os.path.dirname(os.__file__) + "/")


Site: TypeAlias = tuple[str, int]  # a file and a line


@dataclass(frozen=True)
class Branch:
    """The lines that run only if a condition on ranks holds, or only if it does not."""

    file: str
    first: int
    last: int
    condition: str

    def has_one_of(self, sites: Iterable[Site]) -> bool:
        return any(name == self.file and self.first <= line <= self.last for name, line in sites)


def advice(message: str) -> str:
    """Return what to add to the message of a CollectiveTimeout or CollectiveMismatch; mostly ""."""
    own = list(_own_lines())
    others = _sites_of_ranks(message)
    all_sites = [[(_short(file), line) for file, line in own], *others] if others else []
    found: dict[str, None] = {}
    sources = _Sources()
    for file, line in dict.fromkeys([*own, *_lines_in(message)]):
        for branch in sources.branches(file, line):
            # a branch that all ranks took explains nothing
            if not all_sites or not all(map(branch.has_one_of, all_sites)):
                found[f"{branch.file}:{line} is inside {branch.condition}"] = None
                break
    if not found:
        return ""
    return f". {'; '.join(found)}: a collective needs all ranks of its group, so do they all come there?"


def _sites_of_ranks(message: str) -> list[set[Site]]:
    """Return the positions of each rank that the message describes."""
    _, *reports = RANK.split(BEFORE.sub("", message))
    sites: defaultdict[str, set[Site]] = defaultdict(set)
    for rank, text in zip(reports[::2], reports[1::2], strict=True):
        sites[rank].update((name, int(line)) for name, line in SITE.findall(text))
    return list(sites.values())


def _own_lines() -> Iterator[Site]:
    """Yield the lines of the program in this thread, the innermost first."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(INSTALLED) and "-packages/" not in file:
            yield file, frame.f_lineno
        frame = frame.f_back


def _lines_in(message: str) -> Iterator[Site]:
    """Yield the lines of the other ranks, assuming that they run the same files.

    The message has the last two parts of each file's path.
    """
    sites = dict.fromkeys(SITE.findall(message))
    files: defaultdict[str, set[str]] = defaultdict(set)
    for module in list(sys.modules.values()) if sites else []:
        if isinstance(file := getattr(module, "__file__", None), str):
            files[_short(file)].add(file)
    for name, line in sites:
        for file in sorted(files[name]):
            yield file, int(line)


def _short(file: str) -> str:
    return "/".join(file.split("/")[-2:])


class _Sources:
    """The parsed files of a program. Each is parsed once, though many frames may be of one file."""

    def __init__(self) -> None:
        self._trees: dict[str, ast.Module] = {}

    def branches(self, file: str, line: int) -> list[Branch]:
        """Return each branch that has this line and depends on the rank, the innermost first."""
        found: list[Branch] = []
        for node in _nodes_around(line, self._tree(file)):
            if not isinstance(node, ast.If | ast.While | ast.IfExp) or not _asks(node.test):
                continue
            for part in (node.body, node.orelse):
                lines = part if isinstance(part, list) else [part]
                if not lines:
                    continue
                first = _first_line(lines[0], lines[0].lineno)
                last = max(each.end_lineno or each.lineno for each in lines)
                if first <= line <= last:
                    word = "while" if isinstance(node, ast.While) else "if"
                    condition = f"`{word} {ast.unparse(node.test)}` (line {node.lineno})"
                    if word == "while" and part is node.orelse:
                        condition = f"the else of {condition}"
                    found.append(Branch(_short(file), first, last, condition))
                    break
        return found[::-1]

    def _tree(self, file: str) -> ast.Module:
        if file not in self._trees:
            text = "".join(linecache.getlines(file))
            try:
                self._trees[file] = ast.parse(text if len(text) <= MOST_CHARACTERS else "")
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                self._trees[file] = ast.Module(body=[], type_ignores=[])
        return self._trees[file]


def _nodes_around(line: int, tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the nodes around this line, and those without lines; the outer ones first."""
    level: list[ast.AST] = [tree]
    while level:
        yield from level
        children = (child for node in level for child in ast.iter_child_nodes(node))
        level = [
            child
            for child in children
            if _first_line(child, line) <= line <= getattr(child, "end_lineno", line)
        ]


def _first_line(node: ast.AST, default: int) -> int:
    """Return the first line of the node, its decorators included."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    own: int = getattr(node, "lineno", default)
    return min([own, *(each.lineno for each in decorators)])


def _asks(condition: ast.expr) -> bool:
    """Return whether the condition depends on the rank, judged by its names."""
    for node in ast.walk(condition):
        if isinstance(node, ast.Name | ast.Attribute):
            if ASKS.fullmatch(node.id if isinstance(node, ast.Name) else node.attr):
                return True
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and VARIABLE.fullmatch(node.value)
        ):
            return True
    return False
