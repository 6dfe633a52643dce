"""The Python tests pass with a wheel. For example, the module catches what the runtime throws."""

from __future__ import annotations

import os
import shutil
import sys
import zipfile
from pathlib import Path

import pytest
from conftest import X86_64
from roots import wheel_for
from wheels.run import ROOT, run

NEEDS = ("pytest>=8", "pytest-timeout>=2.3", "pytest-xdist>=3.6", "hypothesis>=6.100", "psutil>=5.9", "ml_dtypes>=0.5",
         "cloudpickle>=3", "scikit-learn>=1.3", "expecttest>=0.3", "jax>=0.5",
         os.environ.get("PYCOLLECTIVE_TORCH", "torch==2.13.0+cpu"))  # fmt: skip
MODULES = ("arrays", "bad_input", "collectives", "dtypes", "errors", "failures", "groups", "heap",
           "hostile_arguments", "messages", "objects", "rank0", "planned", "reproducible", "semantics", "size_one",
           "bench_binary")  # fmt: skip


@pytest.mark.timeout(3600)
def test_the_python_tests_pass_with_a_wheel(dist: Path, tmp_path: Path) -> None:
    """Runs in a folder without the package's sources, which Python would import instead."""
    for name in ("tests", "examples", "docs", "benchmarks"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    wheel = wheel_for(f"{sys.version_info.major}.{sys.version_info.minor}", X86_64, dist)
    run(sys.executable, "-m", "venv", tmp_path / "env")
    python = tmp_path / "env" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--only-binary=:all:", wheel, *NEEDS)
    tests = [next(tmp_path.glob(f"tests/python/*/test_{module}.py")) for module in MODULES]
    print(run(python, "-m", "pytest", "-q", *tests, where=tmp_path))


def test_a_wheel_has_the_licences_of_all_that_is_compiled_into_it(dist: Path) -> None:
    wheel = wheel_for(f"{sys.version_info.major}.{sys.version_info.minor}", X86_64, dist)
    names = {Path(name).name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/licenses/" in name}
    assert names >= {"LICENSE", *(path.name for path in (ROOT / "docs" / "licenses").iterdir())}
