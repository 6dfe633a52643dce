"""Docstrings are Markdown with sections; autodoc wants reStructuredText."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator
from itertools import pairwise

TITLE = re.compile(r"([A-Z][\w ,]*):")  # of a section, whose text follows at once, indented
FIELDS = ("Parameters", "Args", "Raises")
CODE = re.compile(r"`([^`]+)`(?=(\w?))")
EMPHASIS = re.compile(r"(?<![\w*])(\*{1,2})(?=[^\s*])[^*]*[^\s*]\1(?![\w*])")
CALL = re.compile(r"\b([A-Za-z_][\w.]*)\(\)")
PAGE = re.compile(r"\bdocs/([\w/-]+)\.md\b")


class Names:
    """What stands in a docstring of `owner` and is a public name leads to it."""

    def __init__(self, public: set[str], owner: str) -> None:
        self.public = public
        parts = owner.split(".")
        self.scopes = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
        self.owner = owner

    def full(self, name: str) -> str | None:
        package, dot, rest = name.partition(".")
        scopes, rest = (
            (["pycollective"], rest) if dot and package in ("pc", "pycollective") else (self.scopes, name)
        )
        found = next((full for scope in scopes if (full := f"{scope}.{rest}") in self.public), None)
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
        is_name = found[1].endswith("()") or "." in found[1] or found[1][0].isupper()  # `size` is a parameter
        full = names.full(found[1].removesuffix("()")) if is_name else None
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
    if kind not in FIELDS:
        found = list(items(lines, r"\w+(?:\(\))?"))
        if not all(name for name, _ in found):
            return [f".. rubric:: {kind}", "", *restructured(lines, names)]
        rows = [f"- ``{name}``: {inline(text, names)}" for name, text in found]
        return [f".. rubric:: {kind}", "", *rows, ""]
    found = items(lines, r"[A-Z]\w+(?:, [A-Z]\w+)*" if kind == "Raises" else r"\w+(?:, \w+)*")
    return [*(f":{head}: {inline(text, names)}" for name, text in found for head in heads(kind, name)), ""]


def heads(kind: str, name: str) -> list[str]:
    """Names the fields of one item; without a name the field has the title of its section."""
    if not name:
        return [kind]
    return [f"raises {name}"] if kind == "Raises" else [f"param {each}" for each in name.split(", ")]


def table(lines: list[str], names: Names) -> list[str]:
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines if "---" not in line]
    text = [".. list-table::", "   :header-rows: 1", ""]
    for row in rows:
        text += [f"   {' ' if column else '*'} - {inline(cell, names)}" for column, cell in enumerate(row)]
    return [*text, ""]


def is_indented(line: str) -> bool:
    return not line or line.startswith(" ")


def is_prose(line: str) -> bool:
    return bool(line) and not line.startswith((" ", ">>>", "|"))


def restructured(lines: list[str], names: Names) -> list[str]:
    """Markdown as our docstrings have it, in reStructuredText."""
    result: list[str] = []
    at = 0
    titles = {
        number: found[1]
        for number, (line, following) in enumerate(pairwise([*lines, ""]))
        if following.startswith(" ") and (found := TITLE.fullmatch(line))
    }

    def taken(wanted: Callable[[str], bool]) -> list[str]:
        nonlocal at
        begin = at
        while at < len(lines) and wanted(lines[at]) and at not in titles:
            at += 1
        return lines[begin:at]

    while at < len(lines):
        line = lines[at]
        if not line:
            at += 1
        elif title := titles.get(at):
            at += 1
            body = textwrap.dedent("\n".join(taken(is_indented))).strip("\n")
            result += section(title, body.split("\n"), names)
        elif line.startswith(" "):
            result += [".. code-block:: python", "", *taken(is_indented), ""]
        elif line.startswith(">>>"):
            result += [*taken(bool), ""]
        elif line.startswith("|"):
            result += table(taken(bool), names)
        else:
            result += [inline(" ".join(taken(is_prose)), names), ""]
    return result
