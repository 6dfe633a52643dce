"""A wheel works with the oldest supported NumPy and JAX, and the newest on every interpreter."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from conftest import DIST, X86_64
from roots import wheel_for
from wheels.interpreters import VERSIONS
from wheels.run import ROOT, run

OWN = f"{sys.version_info.major}.{sys.version_info.minor}"
OLDEST = ("numpy==1.26.*", "jax==0.5.*")
NEWEST = ("numpy", "jax")
NEEDS = ("pytest>=8", "pytest-timeout>=2.3", "pytest-xdist>=3.6", "hypothesis>=6.100", "psutil>=5.9", "ml_dtypes>=0.5",
         "cloudpickle>=3")  # fmt: skip
MODULES = ("arrays", "collectives", "dtypes", "jax_functional", "messages", "numbers", "objects")
REFUSED = {
    OLDEST: "not calls_in_a_scan and not calls_in_a_while_loop"
}  # JAX 0.5 does not support them: it has no gradients of effects


def programs() -> dict[str, str]:
    """Returns the interpreters of this machine with a wheel in dist, but not that of these tests.

    Those that pyenv has built come first, because its shims in PATH may be broken.
    """
    found = {}
    for version in VERSIONS:
        built = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))
        program = next(iter(map(str, reversed(built))), None) or shutil.which(f"python{version}")
        if version != OWN and program and any(DIST.glob(f"*-cp{version.replace('.', '')}-*x86_64.whl")):
            found[version] = program
    return found


ROWS = [pytest.param(OWN, sys.executable, OLDEST, id="oldest")]
ROWS += [pytest.param(version, program, NEWEST, id=version) for version, program in programs().items()]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("version", "program", "libraries"), ROWS)
def test_calls_are_right_with(
    version: str, program: str, libraries: tuple[str, ...], dist: Path, tmp_path: Path
) -> None:
    for name in ("tests", "benchmarks"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    run(program, "-m", "venv", tmp_path / "env")
    python = tmp_path / "env" / "bin" / "python"
    wheel = wheel_for(version, X86_64, dist)
    run(python, "-m", "pip", "install", "--quiet", "--only-binary=:all:", wheel, *libraries, *NEEDS)
    tests = [next(tmp_path.glob(f"tests/python/*/test_{module}.py")) for module in MODULES]
    chosen = ("-k", REFUSED.get(libraries, ""))
    print(run(python, "-m", "pytest", "-q", "-n", "2", *chosen, *tests, where=tmp_path))
