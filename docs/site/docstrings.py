"""Docstrings as autodoc wants them: they are Markdown, and the signatures of compiled calls stand in the stub.

It also warns of each public name that no page of the reference has.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
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
SECTION = re.compile(r"(Parameters|Args|Attributes[^:]*|Returns|Yields|Raises|Examples?):")
CODE = re.compile(r"`([^`]+)`(?=(\w?))")
EMPHASIS = re.compile(r"(?<![\w*])(\*{1,2})(?=[^\s*])[^*]*[^\s*]\1(?![\w*])")
CALL = re.compile(r"\b(?:pc\.|pycollective\.)?([A-Za-z_][\w.]*)\(\)")
PAGE = re.compile(r"\bdocs/([\w/-]+)\.md\b")
FIELD = re.compile(r"^    (\w+): ([^#]+?)(?:  # (.*))?$", re.MULTILINE)
logger = logging.getLogger(__name__)


def public_names() -> set[str]:
    names = {f"{module}.{name}" for module in MODULES for name in importlib.import_module(module).__all__}
    for owner in (pycollective.Group, pycollective.Work):
        names |= {f"pycollective.{owner.__name__}.{name}" for name in vars(owner) if not name.startswith("_")}
    return names


class Names:
    """What stands in a docstring of `owner` and is a public name leads to it."""

    def __init__(self, public: set[str], owner: str) -> None:
        self.public = public
        parts = owner.split(".")
        self.scopes = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
        self.owner = owner

    def full(self, name: str) -> str | None:
        found = next((full for scope in self.scopes if (full := f"{scope}.{name}") in self.public), None)
        return None if found == self.owner else found


def inline(text: str, names: Names) -> str:
    """One paragraph."""
    kept: list[str] = []

    def keep(markup: str) -> str:
        kept.append(markup)
        return f"\0{len(kept) - 1}\0"

    def call(found: re.Match[str]) -> str:
        full = names.full(found[1])
        return keep(f":py:obj:`{found[0]} <{full}>`") if full else found[0]

    def code(found: re.Match[str]) -> str:
        full = names.full(found[1].removesuffix("()").removeprefix("pc.").removeprefix("pycollective."))
        markup = f":py:obj:`{found[1]} <{full}>`" if full else f"``{found[1]}``"
        return keep(markup + ("\\ " if found[2] else ""))

    text = CODE.sub(code, text)
    text = EMPHASIS.sub(lambda found: keep(found[0]), text)
    text = PAGE.sub(lambda found: keep(f":doc:`{found[0]} </docs/{found[1]}>`"), text)
    text = CALL.sub(call, text)
    text = re.sub(r"([\\*|]|_(?!\w))", r"\\\1", text)
    while "\0" in text:
        text = re.sub(r"\0(\d+)\0", lambda found: kept[int(found[1])], text)
    return text


def items(lines: list[str], pattern: str) -> Iterator[tuple[str, str]]:
    """("x", "what is said of x"), and with no name what stands before the first or between them."""
    name, text = "", ""
    for line in lines:
        if not line.startswith(" ") and (found := re.match(rf"({pattern}): ", line)):
            if name or text:
                yield name, text
            name, text = found[1], line[found.end() :]
        elif line.startswith(" ") or not name or not line:
            text = f"{text} {line.strip()}".strip()
        else:
            yield name, text
            name, text = "", line
    if name or text:
        yield name, text


def section(kind: str, lines: list[str], names: Names) -> list[str]:
    if kind.startswith("Example"):
        return [f".. rubric:: {kind}", "", *restructured(lines, names)]
    if kind in ("Returns", "Yields"):
        body = restructured(lines, names)
        return [f":{kind.lower()}: {body[0]}", *(f"    {line}" for line in body[1:]), ""]
    if kind.startswith("Attributes"):
        found = [(f"``{name}``: " if name else "", text) for name, text in items(lines, r"\w+")]
        return ["", f".. rubric:: {kind}", "", *(f"- {name}{inline(text, names)}" for name, text in found), ""]
    role, pattern = ("raises", r"[A-Z]\w+(?:, [A-Z]\w+)*") if kind == "Raises" else ("param", r"\w+(?:, \w+)*")
    fields = []
    for name, text in items(lines, pattern):
        each = name.split(", ") if role == "param" else [name]
        fields += [f":{role} {one}: {inline(text, names)}" if one else f":{kind}: {inline(text, names)}" for one in each]
    return [*fields, ""]


def table(lines: list[str], names: Names) -> list[str]:
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines if "---" not in line]
    text = [".. list-table::", "   :header-rows: 1", ""]
    for row in rows:
        text += [f"   {'- ' if column else '* - '}{inline(cell, names)}" for column, cell in enumerate(row)]
    return [line.replace("   - ", "     - ", 1) if line.startswith("   - ") else line for line in text] + [""]


def restructured(lines: list[str], names: Names) -> list[str]:
    """Markdown as our docstrings have it, in reStructuredText."""
    result: list[str] = []
    at = 0

    def taken(wanted: Any) -> list[str]:  # noqa: ANN401  a function
        nonlocal at
        begin = at
        while at < len(lines) and wanted(lines[at]):
            at += 1
        return lines[begin:at]

    while at < len(lines):
        line = lines[at]
        if not line:
            at += 1
        elif found := SECTION.fullmatch(line):
            at += 1
            body = textwrap.dedent("\n".join(taken(lambda each: not each or each.startswith(" ")))).strip("\n")
            result += section(found[1], body.split("\n"), names)
        elif line.startswith(" "):
            result += ["::", "", *taken(lambda each: not each or each.startswith(" ")), ""]
        elif line.startswith(">>>"):
            result += [*taken(bool), ""]
        elif line.startswith("|"):
            result += table(taken(bool), names)
        else:
            text = taken(lambda each: each and not each.startswith((" ", ">>>", "|")) and not SECTION.fullmatch(each))
            result += [inline(" ".join(text), names), ""]
    return result


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
    for name, nodes in found.items():
        if len(nodes) == 1 and nodes[0].returns:
            arguments = nodes[0].args
            arguments.args = [each for each in arguments.args if each.arg != "self"]
            texts[name] = (f"({ast.unparse(arguments)})", ast.unparse(nodes[0].returns))
    return texts


def setup(app: Sphinx) -> dict[str, Any]:
    public, compiled = public_names(), signatures()

    def convert(_app: Sphinx, what: str, name: str, value: object, _options: object, lines: list[str]) -> None:
        text = textwrap.dedent("\n".join(lines)).strip("\n").split("\n") if any(lines) else []
        of_world = getattr(pycollective, name.rpartition(".")[2], None)
        if name.startswith("pycollective.Group.") and of_world is not None and of_world.__doc__ == value.__doc__:
            text = [text[0], "", f"As {of_world.__name__}(), among the ranks of this group."]
        lines[:] = restructured(text, Names(public, name))
        if what == "class" and not any(".. rubric:: Attributes" in line for line in lines):
            lines += fields(value, Names(public, name))

    def fields(owner: Any, names: Names) -> list[str]:  # noqa: ANN401  a class
        """What a dataclass or a TypedDict holds; the comment beside a field says what it is."""
        own = vars(owner).get("__annotations__", {})
        if not own or not owner.__module__.startswith("pycollective."):
            return []
        found = [each for each in FIELD.findall(inspect.getsource(owner)) if each[0] in own and each[0][0] != "_"]
        rows = (f"- ``{name}``: ``{kind}``{', ' + inline(note, names) if note else ''}" for name, kind, note in found)
        return ["", ".. rubric:: Attributes", "", *rows, ""] if found else []

    def sign(_app: Sphinx, what: str, name: str, *_rest: object) -> tuple[str, str | None] | None:
        if what == "class" and name in ("pycollective.Group", "pycollective.PlannedCall", "pycollective.Work"):
            return "", None  # init() and the calls make them
        return compiled.get(name) if what in ("function", "method") else None

    def check(_app: Sphinx, env: BuildEnvironment) -> None:
        documented = {*env.domains["py"].data["objects"], *env.domains["py"].data["modules"]}
        for name in sorted(public - documented):
            logger.warning("no page in docs/reference has %s", name)

    app.connect("autodoc-process-docstring", convert)
    app.connect("autodoc-process-signature", sign)
    app.connect("env-check-consistency", check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
