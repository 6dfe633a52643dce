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
from collections.abc import Iterator
from types import FrameType

__all__ = ["advice"]

ABOUT_RANKS = re.compile(r"rank|is_main|is_master|main_process", re.IGNORECASE)
SITE = re.compile(r"(?:at|from) ([^\s:]+):(\d+) in ")
INSTALLED = (os.path.dirname(__file__) + "/", os.path.dirname(os.__file__) + "/")


def advice(message: str) -> str:
    """What to add to the message of a collective's CollectiveTimeout or CollectiveMismatch; mostly nothing."""
    found: dict[str, None] = {}
    for file, line in [*_own_lines(), *_lines_in(message)]:
        if (condition := _condition(file, line)) is not None:
            found[f"{_short(file)}:{line} stands under {condition}"] = None
    if not found:
        return ""
    return f". {'; '.join(found)}: a collective needs all ranks of its group, so do they all come there?"


def _own_lines() -> Iterator[tuple[str, int]]:
    """Of the program in this thread, the innermost first."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(INSTALLED) and "-packages/" not in file:
            yield file, frame.f_lineno
        frame = frame.f_back


def _lines_in(message: str) -> Iterator[tuple[str, int]]:
    """Of the other ranks, which mostly run the same files: the message has the last two parts of their names."""
    sites = SITE.findall(message)
    files = {file for module in list(sys.modules.values()) if (file := getattr(module, "__file__", None))}
    for name, line in sites:
        for file in files:
            if _short(file) == name:
                yield file, int(line)


def _short(file: str) -> str:
    return "/".join(file.split("/")[-2:])


def _condition(file: str, line: int) -> str | None:
    """The innermost `if` or `while` about ranks in whose branches this line is."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return None
    inner: str | None = None
    for node in ast.walk(tree):  # outer ones come first
        if not isinstance(node, ast.If | ast.While | ast.IfExp):
            continue
        body = node.body if isinstance(node.body, list) else [node.body]
        last = node.orelse if isinstance(node.orelse, list) else [node.orelse]
        parts = [*body, *last]
        inside = parts[0].lineno <= line <= max(each.end_lineno or each.lineno for each in parts)
        if inside and ABOUT_RANKS.search(ast.unparse(node.test)):
            word = "while" if isinstance(node, ast.While) else "if"
            inner = f"`{word} {ast.unparse(node.test)}` (line {node.lineno})"
    return inner
