"""The python blocks of docs/collectives.md run, on two and three ranks."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import pycollective as pc
from pycollective import testing

PAGE = Path(__file__).resolve().parents[2] / "docs" / "collectives.md"


def blocks() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def run(text: str) -> None:
    exec(compile(text, str(PAGE), "exec"), {"np": np, "pc": pc, "rank": pc.rank(), "size": pc.size()})


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("block", range(len(blocks())))
def test_the_examples_run(block: int, n: int) -> None:
    testing.run(run, n, blocks()[block])


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
