"""pip's spinner also shows how many steps of the build are done.

The build's output is unchanged.
"""

from __future__ import annotations

import importlib.util
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts"
BUILD = """
import os
import build_backend
with build_backend.steps_shown():
    os.system("echo '[1/2] one'; echo words; echo '[2/2] two'")
print("end")
"""
# Runs the build as pip does: its output goes into a pipe.
PIP = (
    f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUILD!r}], stdout={{build}}, check=True)"
)
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("scikit_build_core") is None, reason="scikit-build-core is not installed"
)


def pip(stdout: int, build: Path) -> None:
    program = PIP.format(build=f"open({str(build)!r}, 'w')")
    environment = {**os.environ, "PYTHONPATH": str(SCRIPTS)}
    subprocess.run([sys.executable, "-c", program], stdout=stdout, env=environment, timeout=60, check=True)


def test_steps_are_shown_on_the_terminal_and_lines_pass_on(tmp_path: Path) -> None:
    ours, terminal = pty.openpty()
    pip(terminal, tmp_path / "build")
    assert (tmp_path / "build").read_text() == "[1/2] one\nwords\n[2/2] two\nend\n"
    shown = os.read(ours, 1000).decode()
    assert [f"[{n}/2]" in shown for n in (1, 2)] == [True, True]
    assert "words" not in shown
    assert shown.endswith("\033[K")  # and nothing remains
    os.close(ours)
    os.close(terminal)


def test_without_a_terminal_nothing_is_shown(tmp_path: Path) -> None:
    with open(tmp_path / "shown", "w") as shown:
        pip(shown.fileno(), tmp_path / "build")
    assert (tmp_path / "build").read_text() == "[1/2] one\nwords\n[2/2] two\nend\n"
    assert (tmp_path / "shown").read_text() == ""
