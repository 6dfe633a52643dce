"""The pages of docs/add: the complete diff of each page, and the files that the page names."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Page:
    name: str
    diff: str
    files: frozenset[str]  # named by the page: "- `path`: ..."
    programs: dict[str, str]  # python blocks, by the file name in their first line

    def touched(self) -> frozenset[str]:
        """Files that the diff changes or makes."""
        return frozenset(re.findall(r"^\+\+\+ b/(.+)$", self.diff, re.MULTILINE))

    def apply(self, tree: Path, *options: str) -> subprocess.CompletedProcess[str]:
        """`git apply` the diff to the tree."""
        command = ["git", "apply", "--whitespace=error-all", *options, "-"]
        return subprocess.run(command, cwd=tree, input=self.diff, text=True, capture_output=True, timeout=60)


def read(path: Path) -> Page:
    text = path.read_text()
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    diffs = [body for language, body in blocks if language == "diff"]
    assert len(diffs) == 1, f"{path} has {len(diffs)} diffs"
    files = re.findall(r"^- `([^`]+)`: ", text, re.MULTILINE)
    programs = {
        body.partition("\n")[0].removeprefix("# "): body for language, body in blocks if language == "python"
    }
    return Page(path.stem, diffs[0], frozenset(files), programs)


PAGES = [read(path) for path in sorted((ROOT / "docs" / "add").glob("*.md"))]
