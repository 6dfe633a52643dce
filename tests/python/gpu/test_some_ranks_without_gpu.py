"""Ranks without a GPU take part in calls of ranks that have one, also in the first of a group."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import fake_gpus
import pytest

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ to make the fakes with")


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("fakes")
    return {
        "PYCOLLECTIVE_CUDA_LIB": str(fake_gpus.build_cuda(folder)),
        "PYCOLLECTIVE_NCCL_LIB": str(fake_gpus.build_nccl(folder)),
    }


@pytest.mark.parametrize(
    "first_call",
    ["allreduce", "broadcast", "allreduce_of_a_list", "allgather", "reducer_of_gradients", "messages"],
)
def test_a_rank_that_hides_its_gpu_takes_part(libraries: dict[str, str], first_call: str) -> None:
    words = [sys.executable, "-m", "pycollective", "run", "-n", "3"]
    program = [str(fake_gpus.CHECKS / "some_ranks_without_gpu.py"), first_call]
    environment = (
        os.environ | libraries | {"PYTHONPATH": fake_gpus.PYTHONPATH, "PYCOLLECTIVE_TIMEOUT_S": "30"}
    )
    done = subprocess.run(
        words + program, capture_output=True, text=True, timeout=100, env=environment, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
