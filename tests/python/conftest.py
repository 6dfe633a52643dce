"""What every test gets. Deadlines: pyproject.toml. pytest-timeout ends a test, faulthandler shows where it was."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import pycollective as pc

LAUNCHER_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests do not take part in a world that somebody else has started them in."""
    for name in list(os.environ):
        if name in LAUNCHER_VARIABLES or name.startswith("PYCOLLECTIVE_"):
            monkeypatch.delenv(name)


@pytest.fixture
def world_of_one() -> Iterator[pc.Group]:
    group = pc.init(timeout=30)
    yield group
    pc.shutdown()
