"""scripts/setup, with a .venv whose pip only writes down what it is asked for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.timeout(60)
PIP = """#!/bin/sh
echo "$*" >> pip.log
case "$*" in *"$UNOBTAINABLE"*) exit 1 ;; esac
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    for name in ("scripts/setup", "scripts/test", "pyproject.toml", "CMakeLists.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for name in ("csrc", "bindings", ".venv/bin"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("pip", "python"):
        (tmp_path / ".venv/bin" / name).write_text(PIP)
        (tmp_path / ".venv/bin" / name).chmod(0o755)
    return tmp_path


def setup(clone: Path, **variables: str) -> tuple[list[str], str]:
    """What pip was asked for, and what was said."""
    (clone / "pip.log").unlink(missing_ok=True)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYCOLLECTIVE_")}
    done = subprocess.run(
        ["scripts/setup", "--no-system"],
        cwd=clone,
        env={**inherited, "PYTHON": sys.executable, "UNOBTAINABLE": "nothing", **variables},
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 0, done.stderr
    log = clone / "pip.log"
    calls = log.read_text().splitlines() if log.exists() else []
    return [call.partition("--quiet ")[2] for call in calls if "--quiet" in call], done.stderr


def test_setup_does_nothing_when_nothing_has_changed(clone: Path) -> None:
    assert len(setup(clone)[0]) == 3  # tools, package, PyTorch
    assert setup(clone) == ([], "")
    (clone / "csrc/new.cc").touch()
    assert setup(clone)[0] == ["--no-build-isolation --editable . --no-deps"]


def test_setup_says_loudly_that_pytorch_is_missing_and_tries_again(clone: Path) -> None:
    first, said = setup(clone, UNOBTAINABLE="torch==")
    assert first[-1] == "torch==2.13.0+cpu"
    assert "NO PYTORCH" in said
    assert "PYCOLLECTIVE_TORCH_INDEX" in said
    again, said = setup(clone, UNOBTAINABLE="torch==")
    assert again == ["torch==2.13.0+cpu"]  # and nothing else is done twice
    assert "NO PYTORCH" in said
    assert setup(clone) == (["torch==2.13.0+cpu"], "")
    assert setup(clone) == ([], "")


def test_another_pytorch_can_be_asked_for(clone: Path) -> None:
    setup(clone)
    index = "file:///nowhere"
    wanted = {"PYCOLLECTIVE_TORCH": "torch==2.9.1", "PYCOLLECTIVE_TORCH_INDEX": index}
    assert setup(clone, **wanted) == ([f"--extra-index-url {index} torch==2.9.1"], "")
    assert setup(clone, **wanted) == ([], "")
    assert setup(clone, PYCOLLECTIVE_TORCH="none") == ([], "")


def test_users_do_not_get_warnings_as_errors(clone: Path) -> None:
    assert not any("WERROR" in call for call in setup(clone)[0])


@pytest.mark.parametrize("words", [["all", "-k", "x"], ["full", "-k", "x"], ["nonsense"]])
def test_arguments_that_nobody_would_read_are_refused(clone: Path, words: list[str]) -> None:
    done = subprocess.run(["scripts/test", *words], cwd=clone, capture_output=True, text=True, timeout=50)
    assert done.returncode == 2
    assert "usage: scripts/test" in done.stderr
    assert not (clone / "pip.log").exists()


def test_missing_googletest_is_said_in_words(clone: Path) -> None:
    setup(clone)
    environment = {**os.environ, "CXX": "false", "PYTHON": sys.executable, "UNOBTAINABLE": "nothing"}
    done = subprocess.run(
        ["scripts/test", "unit"], cwd=clone, env=environment, capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 1
    assert "THE C++ TESTS DID NOT RUN: they need GoogleTest" in done.stderr
