"""A program started in a clone without a compiled module uses the installed package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pycollective as pc
from pycollective import _core

SOURCES = Path(pc.__file__).parent
PROGRAM = """
import numpy as np
import pycollective as pc
import pycollective.metrics

pc.init()
assert pc.allreduce(np.ones(1)) == pc.size()
print(pc.size(), pc.__file__, pc.metrics.__file__)

def test_it() -> None:
    assert pc.__file__ == {file!r}
"""
# Imitates an environment without the finder of an editable installation, which would precede all
# of sys.path.
WITHOUT_FINDERS = "import sys; sys.meta_path[:] = [f for f in sys.meta_path if isinstance(f, type)]\n"


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone beside the folders `site`, with the installed package, and `nothing`, without it."""
    folder = tmp_path_factory.mktemp("clone")
    uncompiled = shutil.ignore_patterns("*.so", "bin", "__pycache__")
    for each in ("clone", "site"):
        shutil.copytree(SOURCES, folder / each / "pycollective", ignore=uncompiled)
    for library in Path(_core.__file__).parent.glob("*.so"):
        shutil.copy(library, folder / "site" / "pycollective")
    for each in ("site", "nothing"):
        (folder / each).mkdir(exist_ok=True)
        (folder / each / "sitecustomize.py").write_text(WITHOUT_FINDERS)
    file = str(folder / "site" / "pycollective" / "__init__.py")
    (folder / "clone" / "program.py").write_text(PROGRAM.format(file=file))
    return folder / "clone"


def python(clone: Path, site: str, *words: str) -> subprocess.CompletedProcess[str]:
    command, env = [sys.executable, *words], {**os.environ, "PYTHONPATH": str(clone.parent / site)}
    return subprocess.run(command, cwd=clone, env=env, capture_output=True, text=True, timeout=100)


@pytest.mark.parametrize(
    ("ranks", "words"),
    [(1, ["program.py"]), (2, ["-m", "pycollective", "run", "-n", "2", "--no-prefix", "program.py"])],
)
def test_programs_and_ranks_use_it(clone: Path, ranks: int, words: list[str]) -> None:
    done = python(clone, "site", *words)
    package = clone.parent / "site" / "pycollective"
    said = f"{ranks} {package / '__init__.py'} {package / 'metrics' / '__init__.py'}"
    assert done.stdout.splitlines() == [said] * ranks, done.stderr


def test_pytest_uses_it(clone: Path) -> None:
    done = python(clone, "site", "-m", "pytest", "-p", "no:cacheprovider", "program.py")
    assert done.returncode == 0, done.stdout


def test_where_it_is_not_installed_the_error_says_what_to_do(clone: Path) -> None:
    done = python(clone, "nothing", "program.py")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(
        f"ImportError: there is no compiled module in {clone / 'pycollective'}, the source folder, and pycollective is "
        f"not installed here ({sys.executable}): run `pip install .`"
    )


def test_an_installed_package_of_another_version_is_refused(clone: Path) -> None:
    installed = clone.parent / "site" / "pycollective" / "__init__.py"
    as_it_was = installed.read_text()
    installed.write_text(f"{as_it_was}# of yesterday\n")
    try:
        done = python(clone, "site", "program.py")
    finally:
        installed.write_text(as_it_was)
    assert done.returncode == 1
    assert (
        "is of another version of it: run `pip install .` in the clone again" in done.stderr.splitlines()[-1]
    )
