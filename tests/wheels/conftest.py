"""What the tests of wheels share.

They need root, and take minutes; scripts/wheel test runs them.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from roots import Root, run_aarch64_programs
from wheels.__main__ import DIST
from wheels.targets import TARGETS

os.environ.setdefault("PYTEST_TIMEOUT", "120")  # for tests without a mark of their own

X86_64, AARCH64 = TARGETS["manylinux_x86_64"], TARGETS["manylinux_aarch64"]


@pytest.fixture(scope="session")
def dist() -> Path:
    if not any(DIST.glob("*.whl")):
        pytest.fail("dist has no wheels: scripts/wheel build")
    return DIST


def with_wheel(root: Root, dist: Path, *packages: str) -> Root:
    root.make()
    assert not any(root.has(compiler) for compiler in ("cc", "gcc", "c++", "g++", "clang"))
    root.install(dist, *packages)
    return root


@pytest.fixture(scope="session")
def x86_64(dist: Path) -> Root:
    """Debian 13."""
    return with_wheel(Root("trixie", X86_64, packages="python3"), dist)


@pytest.fixture(scope="session")
def aarch64(dist: Path) -> Root:
    """Debian 13 for the other processor."""
    run_aarch64_programs()
    return with_wheel(Root("trixie", AARCH64, packages="python3"), dist)
