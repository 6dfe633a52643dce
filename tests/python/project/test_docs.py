"""The python blocks of the pages in docs/ run on two ranks or on three; in the full run on both."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import numpy as np
import pytest
import sampled
from arrays import torch

import pycollective as pc
from pycollective import testing

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = DOCS / "collectives.md"
ROOT = DOCS.parent
# Claims about arrays on a GPU that were once true: now they are moved (docs/gpu.md).
DENIALS = re.compile(
    r"in CPU memory(?! or on a GPU)|CPU memory only|moves no arrays of GPUs|no arrays on (a )?GPUs?\b"
    r"|arrays lie on the CPU, so|GPUs? (is|are) not supported|takes? no (GPU|CUDA)|CPU[- ]only|without GPUs? support",
    re.IGNORECASE,
)
PAGES_WITH_TORCH = (
    "auto.md",
    "checkpoint.md",
    "data-parallel.md",
    "data.md",
    "metrics.md",
    "model-parallel.md",
    "one-rank.md",
    "starting.md",
    "torch.md",
)


def blocks(page: Path = PAGE) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def run(folder: Path | None, *texts: str) -> None:
    names = {"np": np, "pc": pc, "torch": torch, "rank": pc.rank(), "size": pc.size(), "folder": folder}
    for text in texts:
        exec(compile(text, str(DOCS), "exec"), dict(names))


def sizes(of: object) -> list[int]:
    return sampled.some([2, 3], 1, of=f"docs {of}")


@pytest.mark.parametrize(("block", "n"), [(block, n) for block in range(len(blocks())) for n in sizes(block)])
def test_the_examples_run(block: int, n: int) -> None:
    testing.run(run, n, None, blocks()[block])


@pytest.mark.skipif(torch is None, reason="torch is not installed")
@pytest.mark.parametrize(("page", "n"), [(page, n) for page in PAGES_WITH_TORCH for n in sizes(page)])
def test_the_examples_of_a_page_run(page: str, n: int, tmp_path: Path) -> None:
    testing.run(run, n, tmp_path, *blocks(DOCS / page))


def test_a_page_imports_in_its_first_example_what_its_examples_use() -> None:
    pages = {page: blocks(page) for page in sorted(DOCS.glob("*.md"))}
    missing = {
        page.name: sorted(names)
        for page, texts in pages.items()
        if texts and (names := used(texts) - assigned(texts[0]) - {"folder"})
    }
    assert not missing


def used(texts: list[str]) -> set[str]:
    """Returns those of the names that run() gives to every block that a page uses."""
    names = {node.id for text in texts for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    return names & {"np", "pc", "torch", "rank", "size", "folder"}


def assigned(text: str) -> set[str]:
    tree = ast.parse(text)
    imported = {each.asname or each.name for each in ast.walk(tree) if isinstance(each, ast.alias)}
    return imported | {
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def test_every_collective_is_in_the_table() -> None:
    calls = {name for name in pc.__all__ if name in vars(pc.Group)} - {
        "group",
        "resync",
        "explain",
        "rank",
        "size",
        "local_rank",
        "local_size",
    }
    missing = {
        name
        for name in calls
        if not name.endswith(("_object", "_async")) and f"`{name}(" not in PAGE.read_text()
    }
    assert not missing


def denials(text: str) -> list[str]:
    joined = " ".join(text.split())
    return [joined[max(0, at.start() - 60) : at.end() + 60] for at in DENIALS.finditer(joined)]


def test_no_page_denies_that_arrays_on_a_gpu_are_moved() -> None:
    pages = [ROOT / "README.md", *DOCS.rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    pages += (ROOT / "benchmarks").rglob("*.md")
    found = {str(page.relative_to(ROOT)): denials(page.read_text()) for page in pages}
    assert not {page: what for page, what in found.items() if what}


def test_no_docstring_denies_that_arrays_on_a_gpu_are_moved() -> None:
    documented = {name: getattr(pc, name) for name in pc.__all__}
    documented |= {f"Group.{name}": what for name, what in vars(pc.Group).items() if not name.startswith("_")}
    found = {name: denials(inspect.getdoc(what) or "") for name, what in documented.items()}
    assert not {name: what for name, what in found.items() if what}


def test_a_denial_is_found() -> None:
    assert denials("x: array,\n in CPU memory, of any shape")
    assert denials("This version moves no arrays of GPUs.")
    assert not denials("x: array, in CPU memory or\n    on a GPU")
