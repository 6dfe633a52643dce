"""The python blocks of docs/collectives.md and docs/torch.md run, on two and three ranks."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from arrays import torch

import pycollective as pc
from pycollective import testing

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "collectives.md"


def blocks(page: Path = PAGE) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def run(*texts: str) -> None:
    names = {"np": np, "pc": pc, "torch": torch, "rank": pc.rank(), "size": pc.size()}
    for text in texts:
        exec(compile(text, str(DOCS), "exec"), dict(names))


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("block", range(len(blocks())))
def test_the_examples_run(block: int, n: int) -> None:
    testing.run(run, n, blocks()[block])


@pytest.mark.skipif(torch is None, reason="torch is not installed")
@pytest.mark.parametrize("n", [2, 3])
def test_the_examples_with_torch_run(n: int) -> None:
    testing.run(run, n, *blocks(DOCS / "torch.md"))


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
