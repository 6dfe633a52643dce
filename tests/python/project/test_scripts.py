"""scripts/setup, with a .venv in which pip only records its requests."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.timeout(60)
PYTHON = f"""#!/bin/sh
case "$*" in "-m pip "*) ;; - | "- "*) exec {sys.executable} "$@" ;; *) exit 0 ;; esac
echo "$*" >> pip.log
case "$*" in *"$UNOBTAINABLE"*) exit 1 ;; esac
"""
PACKAGE = "-v --no-build-isolation --no-deps --editable ."


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    own = ("scripts/setup", "scripts/step", "scripts/test", "pycollective/torch/entry.py")
    for name in (*own, "pyproject.toml", "CMakeLists.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for name in ("csrc", "bindings", ".venv/bin"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("pip", "python"):
        (tmp_path / ".venv/bin" / name).write_text(PYTHON if name == "python" else "#!/bin/sh")
        (tmp_path / ".venv/bin" / name).chmod(0o755)
    return tmp_path


def setup(clone: Path, *words: str, **variables: str) -> tuple[list[str], str]:
    """Returns the requests to pip and the output.

    The requests are sorted, since some are made while the compiler runs.
    """
    (clone / "pip.log").unlink(missing_ok=True)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYCOLLECTIVE_")}
    done = subprocess.run(
        ["scripts/setup", "--no-system", *words],
        cwd=clone,
        env={**inherited, "PYTHON": sys.executable, "UNOBTAINABLE": "nothing", **variables},
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 0, done.stderr
    log = clone / "pip.log"
    calls = log.read_text().splitlines() if log.exists() else []
    return sorted(call.removeprefix("-m pip install ") for call in calls), done.stderr


def test_setup_does_nothing_when_nothing_has_changed(clone: Path) -> None:
    assert len(setup(clone)[0]) == 4  # build tools, package, other packages, PyTorch
    assert setup(clone) == ([], "")
    assert setup(clone, "demo") == ([], "")
    (clone / "csrc/new.cc").touch()
    assert setup(clone)[0] == [PACKAGE]
    (clone / "pycollective/torch/entry.py").write_text("pass\n")  # installed as a copy
    assert setup(clone)[0] == [PACKAGE]


def test_the_demo_installs_what_it_needs_and_a_later_call_the_rest(clone: Path) -> None:
    others, pytorch, package, build_tools = setup(clone, "demo")[0]
    assert (package, pytorch) == (PACKAGE, "--no-compile torch==2.13.0+cpu")
    assert "cmake" in build_tools
    assert "scikit-learn numpy" in others
    assert not any(tool in others for tool in ("ruff", "mypy", "pytest", "jax", "matplotlib"))
    assert setup(clone, "demo") == ([], "")
    (rest,) = setup(clone)[0]
    assert all(tool in rest for tool in ("ruff==", "mypy==", "clang-format==", "numpy", "pytest", "jax"))
    assert setup(clone) == setup(clone, "demo") == ([], "")


def test_setup_says_loudly_that_pytorch_is_missing_and_tries_again(clone: Path) -> None:
    first, said = setup(clone, UNOBTAINABLE="torch==")
    assert "torch==2.13.0+cpu" in first
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


STEP = ["scripts/step", "2", "compiling", "sh", "-c"]
FAILS = "echo '[3/8] a.cc'; exit 3"
WAITS = "echo '[3/8] a.cc'; for i in $(seq 300); do [ -e seen ] && exit 3; sleep 0.1; done; exit 4"


def test_a_step_shows_how_far_it_is_and_what_a_failure_said(clone: Path) -> None:
    environment = {**os.environ, "STEPS": "5"}
    done = subprocess.run(
        [*STEP, FAILS], cwd=clone, env=environment, capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 3
    first, *_, last = done.stdout.splitlines()
    assert (first, last[-17:]) == ("[2/5 0:00] compiling", "compiling: failed")
    assert done.stderr.startswith("[3/8] a.cc\n")


def test_on_a_terminal_a_step_rewrites_its_line(clone: Path) -> None:
    ours, terminal = pty.openpty()
    environment = {**os.environ, "STEPS": "5", "TERM": "xterm"}
    step = subprocess.Popen(
        [*STEP, WAITS], cwd=clone, env=environment, stdout=terminal, stderr=subprocess.DEVNULL
    )
    os.close(terminal)
    shown = ""
    try:
        with contextlib.suppress(OSError):  # EIO: the terminal has ended
            while True:
                shown += os.read(ours, 4000).decode()
                if re.search(r"\r\[2/5 \d+:\d\d\] compiling: 3 of 8\033\[K\r", shown):
                    (clone / "seen").touch()
        assert step.wait(50) == 3, shown
    finally:
        step.kill()
        step.wait()
        os.close(ours)
    assert (clone / "seen").exists(), shown
    assert shown.count("\n") == 1


def test_users_do_not_get_warnings_as_errors(clone: Path) -> None:
    assert not any("WERROR" in call for call in setup(clone)[0])


@pytest.mark.parametrize("words", [["all", "-k", "x"], ["full", "-k", "x"], ["nonsense"]])
def test_arguments_that_would_not_be_read_are_refused(clone: Path, words: list[str]) -> None:
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
