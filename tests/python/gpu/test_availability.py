"""What can be used here, and why not the rest: the driver and NCCL in every state.

Each is missing, refusing, too old or found. The libraries are the fakes of tests/cpp/fakes, opened
like real ones in a process of its own.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import fake_gpus
import pytest

import pycollective as pc
from pycollective import _core
from pycollective.tools.doctor import gpu

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ to make the fakes with")


@pytest.fixture(scope="module")
def cuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_gpus.build_cuda(tmp_path_factory.mktemp("cuda"))


@pytest.fixture(scope="module")
def nccl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Makes a folder like that of NVIDIA's wheel, below a folder that can be on sys.path."""
    folder = tmp_path_factory.mktemp("site") / "nvidia" / "nccl" / "lib"
    folder.mkdir(parents=True)
    return fake_gpus.build_nccl(folder)


def said(program: str, *arguments: str, **variables: Path | str) -> str:
    """Returns what Python prints with these variables and no other variable of ours."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYCOLLECTIVE_")}
    for name in ("NCCL_ROOT", "NCCL_HOME", "CONDA_PREFIX", "CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH"):
        environment.pop(name, None)
    environment |= {name: str(value) for name, value in variables.items()}
    words = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


ASK = "import sys, pycollective as pc; print(pc.available(sys.argv[1]))"


def test_the_ways_between_ranks_are_there() -> None:
    assert pc.available("tcp")
    assert pc.available("shm")
    assert "memfd" in str(pc.available("shm"))


def test_without_a_name_all_are_reported() -> None:
    reported = pc.available()
    assert list(reported) == ["tcp", "shm", "cuda", "nccl"]
    assert reported["tcp"] == pc.available("tcp")
    assert reported["nccl"].name == "nccl"
    assert reported["nccl"].usable == pc.available("nccl").usable


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(pc.Unsupported, match=r"available\('mpi'\): the names are tcp, shm, cuda and nccl"):
        pc.available("mpi")


def test_no_library_is_an_answer_that_names_what_was_searched(tmp_path: Path) -> None:
    nowhere = tmp_path / "libcuda.so.1"
    answer = said(ASK, "cuda", PYCOLLECTIVE_CUDA_LIB=nowhere)
    assert answer.startswith("cuda is not available: ")
    assert str(nowhere) in answer
    missing = tmp_path / "libnccl.so.2"
    answer = said(ASK, "nccl", PYCOLLECTIVE_NCCL_LIB=missing)
    assert answer.startswith("nccl is not available: ")
    assert str(missing) in answer
    assert "no such file" in answer


def test_a_file_that_is_no_driver_is_said_to_be_none(nccl: Path) -> None:
    assert "cuda is not available: " in said(ASK, "cuda", PYCOLLECTIVE_CUDA_LIB=nccl)


def test_a_driver_and_nccl_are_found_with_their_versions_and_places(cuda: Path, nccl: Path) -> None:
    answer = said(ASK, "cuda", PYCOLLECTIVE_CUDA_LIB=cuda)
    assert answer.startswith(f"cuda is available: CUDA 13.0 from {cuda}, with ")
    answer = said(ASK, "nccl", PYCOLLECTIVE_CUDA_LIB=cuda, PYCOLLECTIVE_NCCL_LIB=nccl)
    assert answer.startswith(f"nccl is available: NCCL 2.28.9 from {nccl} (")


def test_nccl_without_a_driver_is_not_available_and_both_are_named(tmp_path: Path, nccl: Path) -> None:
    nowhere = tmp_path / "libcuda.so.1"
    answer = said(ASK, "nccl", PYCOLLECTIVE_CUDA_LIB=nowhere, PYCOLLECTIVE_NCCL_LIB=nccl)
    assert answer.startswith(f"nccl is not available: there is NCCL 2.28.9 from {nccl}")
    assert str(nowhere) in answer


def test_a_wheel_of_nvidia_is_found_without_running_its_code(cuda: Path, nccl: Path) -> None:
    answer = said(ASK, "nccl", PYCOLLECTIVE_CUDA_LIB=cuda, PYTHONPATH=nccl.parents[3])
    assert f"from {nccl} (wheel)" in answer


def test_a_copy_that_is_in_the_process_comes_first(cuda: Path, nccl: Path, tmp_path: Path) -> None:
    loaded = shutil.copy(nccl, tmp_path / "libnccl.so.2")
    first = "import ctypes, sys; ctypes.CDLL(sys.argv[2]); "
    answer = said(first + ASK, "nccl", loaded, PYCOLLECTIVE_CUDA_LIB=cuda, PYTHONPATH=nccl.parents[3])
    assert f"from {loaded} (already loaded)" in answer


def test_init_with_nccl_says_what_is_missing(tmp_path: Path) -> None:
    program = (
        "import pycollective as pc\n"
        "try: pc.init(backend='nccl')\n"
        "except pc.Unsupported as error: print(error)\n"
        "pc.init(); print(pc.size())"
    )
    first, *_, last = said(program, PYCOLLECTIVE_NCCL_LIB=tmp_path / "none.so").splitlines()
    assert first.startswith("backend 'nccl': these ranks cannot go by NCCL: rank 0: ")
    assert last == "1"


def test_init_with_nccl_joins_the_ranks_on_their_gpus(cuda: Path, nccl: Path) -> None:
    program = (
        "import pycollective as pc; pc.init(backend='nccl'); maps = open('/proc/self/maps').read()\n"
        "print('libcuda' in maps, 'libnccl' in maps); pc.shutdown()"
    )
    assert said(program, PYCOLLECTIVE_CUDA_LIB=cuda, PYCOLLECTIVE_NCCL_LIB=nccl) == "True True"


def test_importing_and_a_world_open_no_library_of_nvidia(cuda: Path, nccl: Path) -> None:
    program = (
        "import numpy, pycollective as pc; pc.init(); pc.allreduce(numpy.ones(3))\n"
        "maps = open('/proc/self/maps').read(); print('libcuda' in maps, 'libnccl' in maps)"
    )
    found = said(program, PYCOLLECTIVE_CUDA_LIB=cuda, PYCOLLECTIVE_NCCL_LIB=nccl, LD_LIBRARY_PATH=nccl.parent)
    assert found == "False False"


DOCTOR = "import sys; from pycollective.cli import main; main(['doctor', '--gpu', '--json', '--no-world'])"


def lines(text: str) -> dict[str, list[dict[str, str]]]:
    by_check: dict[str, list[dict[str, str]]] = {}
    for line in json.loads(text):
        by_check.setdefault(line["check"], []).append(line)
    return by_check


def test_the_doctor_prints_driver_devices_and_nccl(cuda: Path, nccl: Path) -> None:
    found = lines(said(DOCTOR, PYCOLLECTIVE_CUDA_LIB=cuda, PYCOLLECTIVE_NCCL_LIB=nccl))
    assert found["CUDA driver"][0]["found"] == f"CUDA 13.0 from {cuda}"
    assert "compute capability" in found["GPU 0"][0]["found"]
    assert found["NCCL"][0]["status"] == "OK"
    assert found["NCCL"][0]["found"].startswith(f"2.28.9 from {nccl}")


def test_the_doctor_says_for_which_gpus_this_build_has_kernels(cuda: Path, nccl: Path) -> None:
    (line,) = lines(said(DOCTOR, PYCOLLECTIVE_CUDA_LIB=cuda, PYCOLLECTIVE_NCCL_LIB=nccl))["GPU kernels"]
    assert line == dataclasses.asdict(gpu.kernels(_core._kernel_targets()))
    assert gpu.kernels(["sm_75", "sm_90", "compute_75"]).found == "for sm_75, sm_90, compute_75"
    assert gpu.kernels([]).found.startswith("none: built without nvcc")


@pytest.mark.parametrize(("setting", "reported"), [("0", "15 times"), ("1", "inside NCCL"), ("", "")])
def test_the_doctor_reports_how_nccl_is_set_to_wait(
    monkeypatch: pytest.MonkeyPatch, setting: str, reported: str
) -> None:
    monkeypatch.setenv("NCCL_COMM_BLOCKING", setting)
    facts = {"version": "2.28.9", "path": "libnccl.so.2", "how": "the loader", "tried": [], "warning": ""}
    lines = gpu.nccl(facts)
    assert len(lines) == (2 if setting else 1)
    assert reported in lines[-1].found


def test_the_doctor_says_what_is_missing_and_what_mends_it(tmp_path: Path) -> None:
    nothing = {"PYCOLLECTIVE_CUDA_LIB": tmp_path / "no.so", "PYCOLLECTIVE_NCCL_LIB": tmp_path / "none.so"}
    found = lines(said(DOCTOR, **nothing))
    for check, file in (("CUDA driver", "no.so"), ("NCCL", "none.so")):
        (line,) = found[check]
        assert line["status"] == "FAIL"
        assert file in line["found"]
        assert line["remedy"]
