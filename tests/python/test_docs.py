"""The python blocks of the pages in docs/ run on two ranks, or on three; in the full run on both."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import sampled
from arrays import torch

import pycollective as pc
from pycollective import testing

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "collectives.md"
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
    names = {"np": np, "pc": pc, "torch": torch, "rank": pc.rank(), "size": pc.size(), "tmp_path": folder}
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
