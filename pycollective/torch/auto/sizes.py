"""A training loop that weighs numbers by len(x): x is whole in the first batch and this rank's part in the others.

A loss is that of the whole batch, so `total += loss.item() * len(x)` is no mean of anything. Nothing can be seen of it
as the program runs; but its text can be read, once, where the optimizer is stepped.
"""

from __future__ import annotations

import ast
import functools
import linecache
import os
import sys
import sysconfig
import types
from collections.abc import Iterator

import torch

import pycollective

__all__ = ["weighing"]

INSTALLED = [sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")]
OURS = [os.path.dirname(each.__file__ or "") for each in (torch, pycollective)]
LIBRARIES = tuple(f"{folder}{os.sep}" for folder in (*OURS, *INSTALLED))
SIZES = ("size", "shape", "numel")
SHOWS = frozenset(  # what shows numbers, and computes nothing with them
    (
        "print",
        "format",
        "write",
        "log",
        "debug",
        "info",
        "warning",
        "add_scalar",
        "set_postfix",
        "set_description",
    )
)
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def weighing() -> str:
    """Where the loop that called us weighs or counts by the size of a batch, as "train.py:12"; or an empty text.

    A look at the text of a program that is not ours: whatever goes wrong with it, the training goes on.
    """
    try:
        return _weighing(sys._getframe(1))
    except Exception:  # such as a RecursionError of the parser
        return ""


def _weighing(frame: types.FrameType | None) -> str:
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(LIBRARIES) and (loop := _loop_around(_tree(name), frame.f_lineno)):
            names = _of_batches(loop)
            for node in _inside(loop):
                if names and _weighs(node, names):
                    return f"{os.path.basename(name)}:{getattr(node, 'lineno', loop.lineno)}"
        frame = frame.f_back
    return ""


@functools.lru_cache(maxsize=64)
def _tree(name: str) -> ast.Module:
    return ast.parse("".join(linecache.getlines(name)))


def _loop_around(tree: ast.AST, line: int) -> ast.For | ast.AsyncFor | None:
    """The innermost one around that line, in the function that the line is in."""
    found: ast.For | ast.AsyncFor | None = None
    node: ast.AST | None = tree
    while node is not None:
        if isinstance(node, SCOPES):
            found = None
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            found = node
        node = next((each for each in _parts(node) if _has_line(each, line)), None)
    return found


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes in it that have lines: a match statement has others between."""
    for each in ast.iter_child_nodes(node):
        if hasattr(each, "lineno"):
            yield each
        else:
            yield from _parts(each)


def _has_line(node: ast.AST, line: int) -> bool:
    return node.lineno <= line <= node.end_lineno  # type: ignore[attr-defined,no-any-return]


def _inside(loop: ast.AST) -> Iterator[ast.AST]:
    """What the loop computes itself: neither in functions that it makes, nor only to be shown."""
    for node in ast.iter_child_nodes(loop):
        if not isinstance(node, (*SCOPES, ast.JoinedStr)) and not _shows(node):
            yield node
            yield from _inside(node)


def _shows(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp):  # "%d of %d" % (...)
        return isinstance(node.op, ast.Mod) and isinstance(node.left, ast.Constant)
    if not isinstance(node, ast.Call):
        return False
    return getattr(node.func, "attr", getattr(node.func, "id", "")) in SHOWS


def _of_batches(loop: ast.For | ast.AsyncFor) -> set[str]:
    """What the loop puts there, and what it makes of it."""
    names = {each.id for each in ast.walk(loop.target) if isinstance(each, ast.Name)}
    for node in _inside(loop):
        if isinstance(node, ast.Assign) and _mentions(node.value, names):
            names |= {
                each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name)
            }
    return names


def _weighs(node: ast.AST, names: set[str]) -> bool:
    if isinstance(node, ast.AugAssign):
        return isinstance(node.op, ast.Add) and _has_size(node.value, names)
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp):
        return isinstance(node.value.op, (ast.Add, ast.Mult)) and _has_size(node.value, names)
    if not isinstance(node, ast.Call):
        return False
    given = [*node.args, *(each.value for each in node.keywords)]  # meter.update(loss.item(), x.size(0))
    sizes = [each for each in given if _has_size(each, names)]
    return bool(sizes) and any(_is_read(each) for each in given if each not in sizes)


def _has_size(node: ast.AST, names: set[str]) -> bool:
    """Whether the size of one of these is read in arithmetic, and not only handed to another function."""
    if isinstance(node, ast.BinOp):
        return _has_size(node.left, names) or _has_size(node.right, names)
    if isinstance(node, ast.Subscript):
        return _has_size(node.value, names)
    if isinstance(node, ast.Attribute):
        return node.attr in SIZES and _mentions(node.value, names)
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute):
        return _has_size(node.func, names)
    called = node.func.id if isinstance(node.func, ast.Name) else ""
    if called == "len":
        return any(_mentions(each, names) for each in node.args)
    return called in ("int", "float") and any(_has_size(each, names) for each in node.args)


def _is_read(tree: ast.AST) -> bool:
    """Whether it is a number of a tensor."""
    return any(
        isinstance(node, ast.Attribute) and node.attr in ("item", "data", "detach") for node in ast.walk(tree)
    )


def _mentions(tree: ast.AST, names: set[str]) -> bool:
    return any(isinstance(node, ast.Name) and node.id in names for node in ast.walk(tree))
