"""Finds a training loop that weighs numbers by len(x), although x is only this rank's part.

x is whole in the first batch and a part in all other batches. A loss is that of the whole batch, so
`total += loss.item() * len(x)` computes no mean. This is not visible while the code runs. Therefore
the source is read once, when the optimizer steps: the loops around the line of that step, and its
function and class. The source does not show whether a branch is ever taken, nor how a size that a
function returns is used. Such lines are reported as possible ones.
"""

from __future__ import annotations

import ast
import functools
import linecache
import os
import sys
import sysconfig
import types
import warnings
from collections.abc import Iterator
from typing import NamedTuple

import torch

import pycollective

__all__ = ["Place", "weighing"]

INSTALLED = [sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")]
OURS = [os.path.dirname(each.__file__ or "") for each in (torch, pycollective)]
LIBRARIES = tuple(f"{folder}{os.sep}" for folder in (*OURS, *INSTALLED))
SIZES = ("size", "shape", "numel")
SHOWS = frozenset(  # calls that print or log numbers without computing with them
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
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
SCOPES = (*FUNCTIONS, ast.Lambda, ast.ClassDef)
Loop = ast.For | ast.AsyncFor
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Place(NamedTuple):
    """A line that weighs by the size of a batch."""

    where: str  # file and line: "train.py:12"
    certain: bool  # whether every batch reaches the line, and the size is used in a computation


class Around(NamedTuple):
    """The innermost function around a line, its loop around the line, and the class around both."""

    loop: Loop | None
    function: Function | None
    of_class: ast.ClassDef | None


class Known(NamedTuple):
    """What the names in a loop or a function stand for."""

    data: set[str]  # names of batches, and of values made from them
    sizes: set[str]  # names of sizes of batches


def weighing() -> Place | None:
    """Returns the line where the calling loop weighs or counts by the size of a batch, or None.

    This reads the source of the user's program. An error in it must not stop the training.
    """
    try:
        return _weighing(sys._getframe(1))
    except Exception:  # e.g. a RecursionError of the parser
        return None


def _weighing(frame: types.FrameType | None) -> Place | None:
    maybe: Place | None = None
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(LIBRARIES):
            for line, certain in _lines(_around(_tree(name), frame.f_lineno), frame.f_lineno):
                place = Place(f"{os.path.basename(name)}:{line}", certain)
                if certain:
                    return place
                maybe = maybe or place
        frame = frame.f_back
    return maybe


@functools.lru_cache(maxsize=64)
def _tree(name: str) -> ast.Module:
    with warnings.catch_warnings():  # Python has issued these warnings already, when it compiled the file
        warnings.simplefilter("ignore")
        return ast.parse("".join(linecache.getlines(name)), name)


def _around(tree: ast.AST, line: int) -> Around:
    loop: Loop | None = None
    function: Function | None = None
    of_class: ast.ClassDef | None = None
    node: ast.AST | None = tree
    while node is not None:
        if isinstance(node, SCOPES):
            loop = None
            function = node if isinstance(node, FUNCTIONS) else None
            of_class = node if isinstance(node, ast.ClassDef) else of_class
        elif isinstance(node, Loop):
            loop = node
        node = next((each for each in _parts(node) if _has_line(each, line)), None)
    return Around(loop, function, of_class)


def _lines(around: Around, line: int) -> Iterator[tuple[int, bool]]:
    """Yields the lines that weigh, and for each whether that is certain."""
    if around.loop is not None:
        known = _known(_names(around.loop.target), around.loop)
        for node, certain in _inside(around.loop, line):
            if known.data and _weighs(node, known):
                yield getattr(node, "lineno", around.loop.lineno), certain
    elif around.function is not None:  # a function that is called for each batch
        known = _known(_parameters(around.function), around.function)
        for node, certain in _inside(around.function, line):
            if isinstance(node, ast.AugAssign) and _weighs(node, known):
                yield node.lineno, certain
            elif isinstance(node, ast.Return) and any(_has_size(each, known) for each in _values(node.value)):
                yield node.lineno, False
    for each in around.of_class.body if around.of_class is not None else ():
        if isinstance(each, FUNCTIONS) and each is not around.function:
            known = _known(_parameters(each), each)
            for node, _ in _inside(each, line):
                adds = isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Attribute)
                if adds and _weighs(node, known):
                    yield getattr(node, "lineno", each.lineno), False


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    """Yields the nearest descendants that have lines: a `case` has none, but its parts do."""
    for each in ast.iter_child_nodes(node):
        if hasattr(each, "lineno"):
            yield each
        else:
            yield from _parts(each)


def _has_line(node: ast.AST, line: int) -> bool:
    return node.lineno <= line <= node.end_lineno  # type: ignore[attr-defined,no-any-return]


def _inside(tree: ast.AST, line: int, certain: bool = True) -> Iterator[tuple[ast.AST, bool]]:
    """Yields the nodes that are evaluated inside `tree`, and whether that is always so.

    Nested functions and expressions that are only printed are skipped. `line` is being executed, so
    the branches that contain it are taken.
    """
    for node, taken in _children(tree, line):
        if taken is not None and not isinstance(node, (*SCOPES, ast.JoinedStr)) and not _shows(node):
            yield node, certain and taken
            yield from _inside(node, line, certain and taken)


def _children(tree: ast.AST, line: int) -> Iterator[tuple[ast.AST, bool | None]]:
    """Yields each child, and true if it is always reached, false if sometimes, None if never."""
    branches: dict[int, bool | None] = {}
    if isinstance(tree, ast.If):
        always = bool(tree.test.value) if isinstance(tree.test, ast.Constant) else None
        for branch, value in ((tree.body, True), (tree.orelse, False)):
            here = any(_has_line(each, line) for each in branch)
            reached = here or (False if always is None else True if always is value else None)
            branches |= {id(each): reached for each in branch}
    for node in ast.iter_child_nodes(tree):
        sometimes = isinstance(node, (ast.ExceptHandler, ast.match_case, ast.IfExp))
        yield node, branches.get(id(node), not sometimes)


def _shows(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp):  # "%d of %d" % (...)
        return isinstance(node.op, ast.Mod) and isinstance(node.left, ast.Constant)
    if not isinstance(node, ast.Call):
        return False
    return getattr(node.func, "attr", getattr(node.func, "id", "")) in SHOWS


def _names(tree: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(tree) if isinstance(each, ast.Name)}


def _parameters(function: Function) -> set[str]:
    given = function.args
    names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return {*names, *(each.arg for each in (given.vararg, given.kwarg) if each)} - {"self", "cls"}


def _known(names: set[str], tree: ast.AST) -> Known:
    """Finds the names in `tree` that are assigned from batches. `names` are those of batches."""
    known = Known(set(names), set())
    for node, _ in _inside(tree, 0):
        if not isinstance(node, ast.Assign):
            continue
        if _has_size(node.value, known):
            firsts = [each.elts[0] if isinstance(each, ast.Tuple) else each for each in node.targets]
            known.sizes.update(
                each.id for each in firsts if isinstance(each, ast.Name)
            )  # n, features = x.shape
        if _mentions(node.value, known.data):
            known.data.update(name for target in node.targets for name in _names(target))
    return known


def _values(node: ast.AST | None) -> list[ast.AST]:
    """Returns the values that a return statement returns, one by one."""
    if isinstance(node, (ast.Tuple, ast.List)):
        return list(node.elts)
    if isinstance(node, ast.Dict):
        return list(node.values)
    return [] if node is None else [node]


def _weighs(node: ast.AST, known: Known) -> bool:
    if isinstance(node, ast.AugAssign):
        return isinstance(node.op, ast.Add) and _has_size(node.value, known)
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp):
        adds = isinstance(node.value.op, (ast.Add, ast.Mult)) and _has_size(node.value, known)
        return adds and (_is_read(node.value) or any(_has(node.value, each) for each in node.targets))
    if not isinstance(node, ast.Call):
        return False
    # the arguments, e.g. of meter.update(loss.item(), x.size(0))
    given = [*node.args, *(each.value for each in node.keywords)]
    sizes = [each for each in given if _has_size(each, known)]
    return bool(sizes) and any(_is_read(each) for each in given if each not in sizes)


def _has_size(node: ast.AST, known: Known) -> bool:
    """Returns whether the value is computed from the size of a batch."""
    if isinstance(node, ast.Name):
        return node.id in known.sizes
    if isinstance(node, ast.BinOp):
        return _has_size(node.left, known) or _has_size(node.right, known)
    if isinstance(node, ast.Subscript):
        return _is_first(node.slice) and _has_size(node.value, known)
    if isinstance(node, ast.Attribute):
        return node.attr in SIZES and _mentions(node.value, known.data)
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute):
        axes = [*node.args, *(each.value for each in node.keywords)]
        return all(_is_first(each) for each in axes) and _has_size(node.func, known)
    called = node.func.id if isinstance(node.func, ast.Name) else ""
    if called == "len":
        return any(_mentions(each, known.data) for each in node.args)
    return called in ("int", "float") and any(_has_size(each, known) for each in node.args)


def _is_first(axis: ast.AST) -> bool:
    """Returns whether `axis` may be the axis of the samples. A number other than 0 is not."""
    if isinstance(axis, ast.UnaryOp):
        return not isinstance(axis.operand, ast.Constant)
    return not isinstance(axis, ast.Constant) or axis.value == 0


def _has(tree: ast.AST, target: ast.AST) -> bool:
    """Returns whether `tree` reads the target of an assignment."""
    name = ast.unparse(target)
    return any(ast.unparse(each) == name for each in ast.walk(tree) if isinstance(each, type(target)))


def _is_read(tree: ast.AST) -> bool:
    """Returns whether `tree` reads a number from a tensor."""
    return any(
        isinstance(node, ast.Attribute) and node.attr in ("item", "data", "detach") for node in ast.walk(tree)
    )


def _mentions(tree: ast.AST, names: set[str]) -> bool:
    return any(isinstance(node, ast.Name) and node.id in names for node in ast.walk(tree))
