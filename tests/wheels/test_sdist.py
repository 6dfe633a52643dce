"""The archive of sources installs with pip, in a new environment."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from wheels.__main__ import make_sdist
from wheels.run import run

HELLO = "import pycollective as pc; pc.init(); print(pc.allreduce([1.0])); pc.shutdown()"


@pytest.mark.timeout(1800)
def test_an_archive_of_sources_installs(tmp_path: Path) -> None:
    archive = make_sdist(tmp_path)
    run(sys.executable, "-m", "venv", tmp_path / "env")
    python = tmp_path / "env" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", archive)
    assert run(python, "-c", HELLO, where=tmp_path).strip() == "[1.0]"
