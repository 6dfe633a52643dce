"""Importing is quick and imports few modules. The package's statements about itself are true."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pycollective as pc
from pycollective import _core
from pycollective.base.advice import Elsewhere

pytestmark = pytest.mark.fresh_ranks

PACKAGE = Path(pc.__file__).parent
STUB = ast.parse((PACKAGE / "_core.pyi").read_text())


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=60, check=True
    )


def test_import_adds_few_modules_to_numpys_own() -> None:
    """This makes it quick; benchmarks/import_time.py measures the time."""
    script = (
        "import numpy, sys; b = set(sys.modules); import pycollective; print(*sorted(set(sys.modules) - b))"
    )
    added = python("-c", script).stdout.split()
    ours = [name for name in added if name.split(".")[0] == "pycollective"]
    assert len(ours) <= 12
    assert set(added) - set(ours) <= {"atexit", "importlib._abc", "importlib.util"}


def test_names_that_are_missing_are_missing_to_type_checkers_too() -> None:
    """Type checkers accept every name of a module with __getattr__."""
    for path in PACKAGE.rglob("*.py"):
        names = {each.name for each in ast.parse(path.read_text()).body if isinstance(each, ast.FunctionDef)}
        assert "__getattr__" not in names, path


def test_import_brings_no_framework_and_starts_nothing() -> None:
    script = """
import sys, threading, os
import pycollective
heavy = {"torch", "cupy", "jax", "ml_dtypes", "msgpack", "asyncio", "multiprocessing", "subprocess", "socket"}
heavy &= set(sys.modules)
print(sorted(heavy), threading.active_count(), len(os.listdir("/proc/self/task")))
"""
    bare = python("-c", script.replace("import pycollective", "import numpy")).stdout
    assert python("-c", script).stdout == bare


def test_without_frameworks_help_works_and_what_needs_one_says_so() -> None:
    script = """
import pydoc, sys
sys.modules.update(torch=None, jax=None)
import pycollective as pc
assert "allreduce" in pydoc.render_doc(pc) and "DataParallel" in pydoc.render_doc(pc.torch)
assert not {"torch", "jax"} & set(dir(pc))
pc.torch.DataParallel
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert "pycollective.torch.DataParallel needs PyTorch, which is not installed" in ended.stderr


def test_all_lists_the_public_names_and_nothing_else() -> None:
    import types

    public = {
        name
        for name in dir(pc)
        if not name.startswith("_") and not isinstance(getattr(pc, name), types.ModuleType)
    }
    # `from pycollective import *` leaves Python's print() alone.
    assert set(pc.__all__) == public - {"print"} | {"__version__"}
    assert pc.__all__ == sorted(pc.__all__)
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", pc.__version__)


Parameters = list[tuple[str, str, bool]]  # name, kind, has a default


def parameters(arguments: ast.arguments) -> Parameters:
    positional = [*arguments.posonlyargs, *arguments.args]
    without = len(positional) - len(arguments.defaults)
    found = [(a.arg, "positional", i >= without) for i, a in enumerate(positional) if a.arg != "self"]
    if arguments.vararg:
        return [*found, ("*", "rest", True)]
    return found + [
        (a.arg, "keyword", d is not None)
        for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]


def signature_of(function: Any) -> Parameters:
    try:
        text = str(inspect.signature(function)).replace("($self, ", "(self, ")
    except ValueError:  # the first line of pybind11's docstring has it
        text = re.search(r"\(.*\)", (function.__doc__ or "").splitlines()[0])[0]
        text = re.sub(r"<[^<>]*>", "None", text)
    return parameters(ast.parse(f"def f{text}: ...").body[0].args)


STUB_FUNCTIONS = [node for node in STUB.body if isinstance(node, ast.FunctionDef)]
STUB_VALUES = {"ANY_SOURCE"}
STUB_CLASSES = [
    node
    for node in STUB.body
    if isinstance(node, ast.ClassDef) and not any(ast.unparse(b) == "Protocol" for b in node.bases)
]


def test_the_stub_has_the_names_of_the_core() -> None:
    hidden = {"_world"}  # allows the functions to be pickled
    names = {name for name in vars(_core) if not name.startswith("__")} - hidden
    assert {node.name for node in STUB_FUNCTIONS + STUB_CLASSES} | STUB_VALUES == names
    for node in STUB_CLASSES:
        members = {
            name
            for name, value in vars(getattr(_core, node.name)).items()
            if not name.startswith("_") and not isinstance(value, Elsewhere)
        }
        named = [item.name for item in node.body if isinstance(item, ast.FunctionDef)]
        assert {name for name in named if not name.startswith("_")} == members


STUB_CALLS = [(_core, node) for node in STUB_FUNCTIONS] + [
    (getattr(_core, node.name), item)
    for node in STUB_CLASSES
    for item in node.body
    if isinstance(item, ast.FunctionDef) and not item.decorator_list and item.name != "__exit__"
]


@pytest.mark.parametrize(
    ("owner", "node"), STUB_CALLS, ids=lambda value: getattr(value, "name", value.__class__.__name__)
)
def test_the_stub_has_the_signatures_of_the_core(owner: Any, node: ast.FunctionDef) -> None:
    actual, declared = signature_of(getattr(owner, node.name)), parameters(node.args)
    if node.decorator_list:  # an overload may require a parameter that has a default
        actual, declared = ([each[:2] for each in signature] for signature in (actual, declared))
    assert actual == declared
