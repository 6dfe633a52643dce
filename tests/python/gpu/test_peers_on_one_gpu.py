"""Ranks that share a GPU access each other's arrays: processes, on a FAKE driver.

The driver maps their memory.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import fake_gpus
import pytest
from peers_on_one_gpu import a_rank_dies

from pycollective import testing

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ to make the fakes with")


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("fakes")
    return {
        "PYCOLLECTIVE_CUDA_LIB": str(fake_gpus.build_cuda(folder)),
        "PYCOLLECTIVE_NCCL_LIB": str(fake_gpus.build_nccl(folder)),
    }


def run(ranks: int, what: str, libraries: dict[str, str]) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "pycollective", "run", "-n", str(ranks)]
    program = [str(fake_gpus.CHECKS / "peers_on_one_gpu.py"), what]
    environment = os.environ | libraries | {"PYTHONPATH": fake_gpus.PYTHONPATH}
    return subprocess.run(
        words + program, capture_output=True, text=True, timeout=100, env=environment, check=False
    )


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_collectives_go_from_array_to_array(libraries: dict[str, str], ranks: int) -> None:
    done = run(ranks, "collectives", libraries)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "through the host" not in done.stderr


def test_a_rank_that_is_killed_in_a_call_is_reported_to_all(libraries: dict[str, str]) -> None:
    with pytest.raises(testing.WorldFailed) as caught:
        testing.run(a_rank_dies, 3, env=libraries)
    assert list(caught.value.errors) == [1], caught.value
    for rank in (0, 2):
        assert "rank 1" in str(caught.value.results[rank])


def test_an_array_of_a_call_that_is_interrupted_is_its_owners_again(libraries: dict[str, str]) -> None:
    done = run(2, "a_rank_is_interrupted", libraries)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "KeyboardInterrupt" in done.stdout
