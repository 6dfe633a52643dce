"""torch.distributed on tensors of GPUs: on fakes of the driver, of NCCL and of torch.cuda.

The checks are in torch_gpu_checks.py and run in a process of its own. The daily run makes each with
2 ranks or with 3 (sampled.py). What only a GPU can prove is in tests/gpu/card/on_gpu.py.
"""

from __future__ import annotations

import re
import shutil
from typing import NoReturn

import fake_gpus
import pytest
import sampled
from arrays import torch
from gpu_checking import failures_of

import pycollective as pc

if torch is None:
    pytest.skip("torch is not installed", allow_module_level=True)

from torch._jit_internal import _extract_tensors
from torch.futures import Future

from pycollective.torch.backend.futures import _Failure, settle

CHECKS = fake_gpus.CHECKS / "torch_gpu_checks.py"
NAMES = re.findall(r"^@check\ndef (\w+)", CHECKS.read_text(), re.MULTILINE)
CASES = [f"{name}_on_{size}" for name in NAMES for size in sampled.some((2, 3), 1, of=name)]
STREAM_CHECKS = sampled.some(("off", "on"), 1, of="PYCOLLECTIVE_STREAM_CHECK")
needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None, reason="there is no g++ to make the fakes with"
)


@pytest.fixture(scope="module", params=STREAM_CHECKS)
def failed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Returns the tracebacks of the checks that failed."""
    return failures_of(CHECKS, tmp_path_factory.mktemp("fakes"), CASES, request.param)


@needs_compiler
@pytest.mark.parametrize("case", CASES)
def test_on_fakes(failed: dict[str, str], case: str) -> None:
    assert case not in failed, failed[case]


def test_a_future_that_looks_for_tensors_on_devices_takes_an_error_as_well() -> None:
    """Futures of a GPU do so; device numbers that do not exist are enough here."""
    future: Future[object] = Future(devices=["meta:0"])

    def fails() -> NoReturn:
        raise pc.PeerFailure("rank 1 is gone")

    settle(future, fails, on_gpu=True)
    assert future.done()
    with pytest.raises(pc.PeerFailure, match="rank 1 is gone"):
        future.wait()
    # The next reader is C++ code that expects a tensor, as DDP's does; its first query of the value
    # raises the error.
    failure = _Failure(pc.PeerFailure("rank 1 is gone"), looked_into=True)
    assert _extract_tensors(failure) == []
    (found,) = _extract_tensors(failure)
    with pytest.raises(pc.PeerFailure, match="rank 1 is gone"):
        isinstance(found, torch.Tensor)
