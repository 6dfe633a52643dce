"""Gives autodoc the docstring and the signature of each public name.

The signature of a compiled call is in the stub.

It also warns of each public name that no page of the reference has.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from pathlib import Path
from typing import Any

from docutils import nodes
from restructured import Names, inline, restructured
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.ext.autodoc.mock import mock
from sphinx.util import logging

import pycollective

STUB = Path(__file__).resolve().parents[2] / "pycollective/_core.pyi"
MODULES = (
    "pycollective",
    "pycollective.checkpoint",
    "pycollective.data",
    "pycollective.debug",
    "pycollective.jax",
    "pycollective.metrics",
    "pycollective.paddle",
    "pycollective.testing",
    "pycollective.torch",
    "pycollective.torch.functional",
)
MADE_BY_CALLS = ("pycollective.Group", "pycollective.PlannedCall", "pycollective.Work")
FIELD = re.compile(r"^    (\w+): ([^#]+?)(?:  # (.*))?$", re.MULTILINE)
logger = logging.getLogger(__name__)


def public_names() -> set[str]:
    names = {f"{module}.{name}" for module in MODULES for name in importlib.import_module(module).__all__}
    for owner in (pycollective.Group, pycollective.Work):
        names |= {f"pycollective.{owner.__name__}.{name}" for name in vars(owner) if not name.startswith("_")}
    return names


def is_call_of_group(name: str, value: object) -> bool:
    """Whether a method says what the function of the same name does."""
    if not name.startswith("pycollective.Group."):
        return False
    function = getattr(pycollective, name.rpartition(".")[2], None)
    return function is not None and function.__doc__ == value.__doc__


def fields(owner: Any, names: Names) -> list[str]:  # noqa: ANN401  a class
    """What a dataclass or a TypedDict holds; the comment beside a field says what it is."""
    own = vars(owner).get("__annotations__", {})
    if not own or not owner.__module__.startswith("pycollective."):
        return []
    found = [each for each in FIELD.findall(inspect.getsource(owner)) if each[0] in own and each[0][0] != "_"]
    rows = [f"- ``{name}``: ``{kind}``{note and f', {inline(note, names)}'}" for name, kind, note in found]
    return ["", ".. rubric:: Attributes", "", *rows, ""] if rows else []


def signatures() -> dict[str, tuple[str, str]]:
    """Of the compiled calls, from the stub; not of those that have several."""
    found: dict[str, list[ast.FunctionDef]] = {}
    for node in ast.parse(STUB.read_text()).body:
        members = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"pycollective.{node.name}." if isinstance(node, ast.ClassDef) else "pycollective."
        for member in members:
            if isinstance(member, ast.FunctionDef):
                found.setdefault(prefix + member.name, []).append(member)
    texts = {}
    for name, forms in found.items():
        if len(forms) == 1 and forms[0].returns:
            arguments = forms[0].args
            arguments.args = [each for each in arguments.args if each.arg != "self"]
            texts[name] = (f"({ast.unparse(arguments)})", ast.unparse(forms[0].returns))
    return texts


def read_docstring(
    app: Sphinx, what: str, name: str, value: object, _options: object, lines: list[str]
) -> None:
    names = Names(app.public_names, name)
    text = textwrap.dedent("\n".join(lines)).strip("\n").split("\n") if any(lines) else []
    if is_call_of_group(name, value):
        summary = text[: text.index("")]
        text = [*summary, "", f"As pycollective.{name.rpartition('.')[2]}(), among the ranks of this group."]
    lines[:] = restructured(text, names)
    if what == "class" and not any(line.startswith(".. rubric:: Attributes") for line in lines):
        lines += fields(value, names)


def sign(app: Sphinx, what: str, name: str, *_rest: object) -> tuple[str, str | None] | None:
    if what == "exception" or name in MADE_BY_CALLS:
        return "", None  # programs do not make one
    return app.signatures.get(name) if what in ("function", "method") else None


def draw_dashes(_app: Sphinx, doctree: nodes.document) -> None:
    """Separates a parameter from its text. Elsewhere `--` begins an option: no smartquotes."""
    for text in [each for each in doctree.findall(nodes.Text) if each == " -- "]:
        text.parent.replace(text, nodes.Text(" \N{EN DASH} "))


def check_names(app: Sphinx, env: BuildEnvironment) -> None:
    documented = {*env.domains["py"].data["objects"], *env.domains["py"].data["modules"]}
    for name in sorted(app.public_names - documented):
        logger.warning("no page in docs/reference has %s", name)


def load(app: Sphinx, _config: object) -> None:
    with mock(app.config.autodoc_mock_imports):
        app.public_names = public_names()
    app.signatures = signatures()


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("config-inited", load)
    app.connect("autodoc-process-docstring", read_docstring)
    app.connect("autodoc-process-signature", sign)
    app.connect("doctree-read", draw_dashes)
    app.connect("env-check-consistency", check_names)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
