"""Makes the tree of pages from the lists and tables of some pages, which stay plain Markdown.

A heading of docs/README.md is a part of the tree. The links below it are the pages of that part.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

from sphinx.application import Sphinx

PAGES = ("docs/README", "docs/decisions/README", "examples/README")
ITEM = re.compile(r"^(?:- |\| )\[([^]]*)\]\(([^):#]+)\.md\)", re.MULTILINE)


def add_tree(_app: Sphinx, name: str, text: list[str]) -> None:
    if name not in PAGES:
        return
    folder = posixpath.dirname(name)
    parts = text[0].split("\n## ")
    for part in parts:
        pages = [
            f"{title} </{posixpath.normpath(posixpath.join(folder, page))}>"
            for title, page in ITEM.findall(part)
        ]
        caption = [f":caption: {part.partition(chr(10))[0].strip('# ')}"] if len(parts) > 1 else []
        text[0] += "\n".join(("\n\n```{toctree}", ":hidden:", *caption, "", *pages, "```\n")) if pages else ""


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", add_tree)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
