"""`setup.py` builds the same name, version and files from the sources as pip does."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pycollective as pc

ROOT = Path(__file__).resolve().parents[3]
pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(
        importlib.util.find_spec("scikit_build_core") is None, reason="scikit-build-core is not installed"
    ),
]


@pytest.mark.daily(0)
def test_setup_py_has_the_version_and_the_type_information(tmp_path: Path) -> None:
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "pycollective", tmp_path / "pycollective", ignore=shutil.ignore_patterns("*.so"))
    words = [sys.executable, "setup.py", "-q", "--name", "--version", "build_py", "--build-lib", "lib"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-2:] == ["pycollective", pc.__version__]
    words = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", "lib"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    built = {str(path.relative_to(tmp_path / "lib")) for path in (tmp_path / "lib").rglob("*.py*")}
    wanted = {str(path.relative_to(tmp_path)) for path in (tmp_path / "pycollective").rglob("*.py")}
    assert built == wanted | {"pycollective/_core.pyi"}
    assert (tmp_path / "lib/pycollective/py.typed").exists()
