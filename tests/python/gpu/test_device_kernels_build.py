"""The kernels for GPUs as CMake builds them: with nvcc, without it, and with a broken one."""

from __future__ import annotations

import re
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from device_kernels import carried, configure, tool

PTX, MACHINE_CODE = 1, 2  # kinds of entries in a fat binary
NVCC = tool("nvcc")
needs_nvcc = pytest.mark.skipif(not NVCC, reason="there is no nvcc in PATH")
pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif("" in map(tool, ("cmake", "ninja", "c++")), reason="cmake, ninja or c++ is missing"),
]


def entries(fat: bytes) -> Iterator[tuple[int, int]]:
    """Yield (kind, architecture) of everything in a fat binary."""
    magic, _, header, nbytes = struct.unpack_from("<IHHQ", fat)
    assert magic == 0xBA55ED50
    assert header + nbytes == len(fat)
    at = header
    while at < len(fat):
        kind, _, header, nbytes = struct.unpack_from("<HHIQ", fat, at)
        yield kind, struct.unpack_from("<I", fat, at + 28)[0]
        at += header + nbytes


def nvcc_of(folder: Path, script: str) -> str:
    """Writes a script that stands in for nvcc, and returns the option that makes CMake take it."""
    nvcc = folder / "nvcc"
    nvcc.write_text("#!/bin/sh\n" + script)
    nvcc.chmod(0o755)
    return f"-DPYCOLLECTIVE_NVCC={nvcc}"


def test_nothing_is_searched_for_and_nothing_carried_if_it_is_off(tmp_path: Path) -> None:
    marker = tmp_path / "asked"
    done = configure(tmp_path, "-DPYCOLLECTIVE_CUDA=OFF", nvcc_of(tmp_path, f"touch {marker}"))
    assert done.returncode == 0, done.stderr
    assert "no kernels for GPUs: PYCOLLECTIVE_CUDA is OFF" in done.stdout
    assert carried(tmp_path) == (b"", [])
    assert not marker.exists()


def test_a_machine_without_nvcc_builds_without_kernels_and_says_so(tmp_path: Path) -> None:
    compiler = f"-DCMAKE_CXX_COMPILER={tool('c++')}"
    # Programs are searched for only below an empty folder, wherever this machine has them.
    nowhere = (f"-DCMAKE_FIND_ROOT_PATH={tmp_path}", "-DCMAKE_FIND_ROOT_PATH_MODE_PROGRAM=ONLY", compiler)
    done = configure(tmp_path, *nowhere)
    assert done.returncode == 0, done.stderr
    assert "no kernels for GPUs: there is no nvcc in PATH, CUDA_HOME or /usr/local/cuda" in done.stdout
    done = configure(tmp_path, "-DPYCOLLECTIVE_CUDA=ON")
    assert done.returncode != 0
    assert "PYCOLLECTIVE_CUDA is ON, but there is no nvcc" in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("echo 'no licence today' >&2; exit 3", "--list-gpu-code ends with 3: no licence today"),
        ("echo sm_70", "knows none of PYCOLLECTIVE_CUDA_ARCHS=75;90"),
        (
            "[ $1 = --list-gpu-code ] && echo sm_90 || { echo 'bad host compiler' >&2; exit 1; }",
            "it ends with 1: bad host compiler",
        ),
    ],
)
def test_an_nvcc_that_does_not_work_is_an_error_only_where_kernels_are_demanded(
    tmp_path: Path, script: str, says: str
) -> None:
    nvcc = nvcc_of(tmp_path, script)
    done = configure(tmp_path, nvcc, "-DPYCOLLECTIVE_CUDA_ARCHS=75;90")
    assert done.returncode == 0, done.stderr
    assert "no kernels for GPUs" in done.stdout
    assert says in done.stdout
    done = configure(tmp_path, nvcc, "-DPYCOLLECTIVE_CUDA=ON")
    assert done.returncode != 0
    assert says in " ".join(done.stderr.split())


def test_another_word_than_auto_on_and_off_is_refused(tmp_path: Path) -> None:
    done = configure(tmp_path, "-DPYCOLLECTIVE_CUDA=PERHAPS")
    assert done.returncode != 0
    assert "it can be AUTO, ON or OFF" in done.stderr


@pytest.mark.parametrize(("state", "asked"), [("wheel", True), ("editable", False), ("", False)])
def test_a_wheel_asks_for_nvcc_and_what_is_built_in_place_does_not(
    tmp_path: Path, state: str, asked: bool
) -> None:
    marker = tmp_path / "asked"
    nvcc = nvcc_of(tmp_path, f"touch {marker}; exit 1")
    done = configure(tmp_path, nvcc, "-DSKBUILD=2", f"-DSKBUILD_STATE={state}")
    assert done.returncode == 0, done.stderr
    assert "no kernels for GPUs" in done.stdout
    assert marker.exists() == asked


@needs_nvcc
def test_the_targets_are_all_that_are_wanted_and_known_and_are_asked_for_once(tmp_path: Path) -> None:
    known = subprocess.run(
        [NVCC, "--list-gpu-code"], capture_output=True, text=True, check=True
    ).stdout.split()
    wanted = [f"sm_{arch}" for arch in (75, 80, 90, 100, 120) if f"sm_{arch}" in known]
    done = configure(tmp_path, "-DPYCOLLECTIVE_CUDA=ON")
    assert done.returncode == 0, done.stderr
    assert " ".join([*wanted, wanted[0].replace("sm", "compute")]) in done.stdout
    (tmp_path / "build/device/probe.fatbin").unlink()
    assert configure(tmp_path).returncode == 0
    assert not (tmp_path / "build/device/probe.fatbin").exists(), "nvcc has been tried again"


@pytest.fixture(scope="module")
def two_targets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build for two targets and one that no nvcc knows. nvcc keeps its intermediate files."""
    folder = tmp_path_factory.mktemp("two_targets")
    (folder / "kept").mkdir()
    keeping = nvcc_of(folder, f'exec "{NVCC}" "$@" --keep --keep-dir "{folder}/kept"')
    words = ("-DPYCOLLECTIVE_CUDA=ON", "-DPYCOLLECTIVE_CUDA_ARCHS=90;999;80", "-DPYCOLLECTIVE_WERROR=ON")
    done = configure(folder, keeping, *words)
    assert done.returncode == 0, done.stderr
    assert "knows no sm_999" in done.stdout
    return folder


@needs_nvcc
def test_the_kernels_are_carried_for_every_target_and_stay_small(two_targets: Path) -> None:
    fat, targets = carried(two_targets)
    assert targets == ["sm_80", "sm_90", "compute_80"]
    assert sorted(entries(fat)) == [(PTX, 80), (MACHINE_CODE, 80), (MACHINE_CODE, 90)]
    assert len(fat) < 3 * 60_000 or b"\x7fELF" in fat  # an old nvcc does not compress


@needs_nvcc
def test_nothing_is_fused_flushed_or_approximated(two_targets: Path) -> None:
    carried(two_targets)
    (kept,) = (two_targets / "kept").glob("reduce*.ptx")
    text = kept.read_text()
    assert re.findall(r"^.*(?:\bfma|\bmad\.rn|\.ftz|\.approx|div\.full).*$", text, re.MULTILINE) == []
    kernels = dict(re.findall(r"\.entry (\w+)\((.*?)^\}", text, re.MULTILINE | re.DOTALL))
    assert len(kernels) == 44
    assert "div.rn.f32" in kernels["pc_weighted_f16"]
    # A thread reads vectors, four of each array before it uses the first.
    moves = re.findall(r"(ld|st)\.global(?:\.\w+)*\.v4\.\w+", kernels["pc_sum_f32"])
    assert moves == ["ld"] * 8 + ["st"] * 4
