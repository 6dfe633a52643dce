"""The package stays small: compiled code is stored once, and a wheel has at most 3 MiB.

This includes the kernels for GPUs.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest
from device_kernels import carried, configure, tool

import pycollective as pc
from pycollective import _core

MOST_NBYTES = 3 << 20
DIST_INFO_NBYTES = 24 << 10  # the wheel's record, metadata and licence, compressed


def shipped() -> dict[str, bytes]:
    """Returns the installed files. An editable install has its sources elsewhere."""
    compiled, sources = Path(_core.__file__).parent, Path(pc.__file__).parent
    paths = [path for path in compiled.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    paths += [path for path in sources.rglob("*") if path.suffix in (".py", ".pyi")]
    return {str(path): path.read_bytes() for path in paths}


def wheel_nbytes(files: dict[str, bytes]) -> int:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in files.items():
            wheel.writestr(name.partition("/pycollective/")[2] or name, content)
    return len(archive.getvalue()) + DIST_INFO_NBYTES


def largest(files: dict[str, bytes]) -> list[str]:
    return sorted(files, key=lambda name: len(files[name]), reverse=True)[:5]


def test_a_wheel_of_what_is_installed_has_at_most_3_mib() -> None:
    files = shipped()
    assert wheel_nbytes(files) <= MOST_NBYTES, largest(files)


@pytest.mark.daily(0)
@pytest.mark.skipif(
    "" in map(tool, ("nvcc", "cmake", "ninja", "c++")), reason="nvcc, cmake, ninja or c++ is missing"
)
def test_a_wheel_with_kernels_for_gpus_has_at_most_3_mib(tmp_path: Path) -> None:
    files = shipped()
    if not _core._kernel_targets():
        done = configure(tmp_path, "-DPYCOLLECTIVE_CUDA=ON")
        assert done.returncode == 0, done.stderr
        files["kernels"], _ = carried(tmp_path)
    assert wheel_nbytes(files) <= MOST_NBYTES, largest(files)
