"""README.md is true: every code block is executed and has the output that is shown.

A python block is a file; its first line is its name. A bash block is run in the folder of those
files. A text block is what the bash block before it prints, in any order of lines. Blocks that
clone, install or take minutes are not run; what they name must exist.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from arrays import torch

ROOT = Path(__file__).resolve().parents[3]
README = ROOT / "README.md"
NOT_RUN = ("git clone ", "cd pycollective", "pip install .", "pip install dist/", "scripts/")
if torch is None:
    NOT_RUN += ("pycollective run -n 2 train_torch.py",)
pytestmark = pytest.mark.timeout(180)


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int


def blocks() -> list[Block]:
    text = README.read_text()
    found = re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [Block(each[1], each[2], text.count("\n", 0, each.start()) + 1) for each in found]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the README's files, and its programs as users have them on their PATH."""
    for block in blocks():
        if block.language == "python":
            name = re.match(r"# (\w+\.py)\n", block.text)
            assert name, f"README.md:{block.line}: the first line of a python block is its file name"
            (tmp_path / name[1]).write_text(block.text)
    (tmp_path / "bin").mkdir()
    for name, arguments in (
        ("python", ""),
        ("pycollective", "-c 'import sys; from pycollective.cli import main; sys.exit(main())'"),
        ("pycollective-bench", "-m pycollective.tools.bench_binary"),
    ):
        script = tmp_path / "bin" / name
        script.write_text(f'#!/bin/sh\nexec {sys.executable} {arguments} "$@"\n')
        script.chmod(0o755)
    return tmp_path


RUN = [
    (block, following)
    for block, following in zip(blocks(), [*blocks()[1:], None], strict=True)
    if block.language == "bash"
]


@pytest.mark.parametrize(
    ("block", "following"), RUN, ids=lambda block: f"line{block.line}" if block else "end"
)
def test_commands_do_what_the_readme_shows(block: Block, following: Block | None, folder: Path) -> None:
    runnable = [line for line in block.text.splitlines() if not line.startswith(NOT_RUN)]
    for line in block.text.splitlines():
        if line.startswith("scripts/"):
            assert os.access(ROOT / line.split()[0], os.X_OK), f"README.md:{block.line}: {line}"
    if not runnable:
        return
    environment = {**os.environ, "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-e", "-c", "\n".join(runnable)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    if following and following.language == "text":
        assert sorted(done.stdout.splitlines()) == sorted(following.text.splitlines())


def test_every_block_is_of_a_kind_that_is_tested() -> None:
    assert {block.language for block in blocks()} == {"python", "bash", "text"}
    assert len(RUN) >= 5


def test_install_is_possible_and_links_lead_somewhere() -> None:
    assert (ROOT / "pyproject.toml").exists()
    for target in re.findall(r"\]\(([^):]+)\)", README.read_text()):
        assert (ROOT / target).exists(), target
