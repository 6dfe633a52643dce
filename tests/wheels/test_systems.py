"""A wheel works without a compiler, on systems older and newer than the one that built it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from conftest import X86_64, with_wheel
from old_python import OldPython
from roots import Root
from wheels.run import ROOT

DIGITS = "digits_numpy.py"


def digits(root: Root, *options: str) -> None:
    """Four ranks train, have equal parameters after every epoch, and recognize the digits."""
    shutil.copy(ROOT / "examples" / DIGITS, root.folder / "root")
    command = ("python3", "-m", "pycollective", "run", "-n", "4", "--no-prefix", f"/root/{DIGITS}", "--json")
    last = root.run(*command, *options, env={"OPENBLAS_NUM_THREADS": "1"}).strip().rpartition("\n")[2]
    result = json.loads(last)
    assert result["ranks"] == 4
    assert [len(set(epoch)) for epoch in result["hashes"]] == [1] * result["epochs"]
    assert result["accuracy"] > 0.95


@pytest.mark.timeout(1800)
def test_a_newer_system(dist: Path) -> None:
    root = Root("forky", X86_64, packages="python3")
    digits(with_wheel(root, dist, "scikit-learn"))


@pytest.mark.timeout(3600)
def test_an_older_system(dist: Path) -> None:
    """Debian 11 has glibc 2.31.

    Its own Python is older than any that we support, so it gets one.
    """
    root = OldPython("bullseye", X86_64)
    digits(with_wheel(root, dist, "scikit-learn"))
