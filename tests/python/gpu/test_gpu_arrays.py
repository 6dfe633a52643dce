"""Arrays on GPUs, as users pass them: on fakes of the driver and NCCL (gpu_checking.py).

The checks run in processes of their own. What only a GPU can prove is in tests/cpp/gpu/card and
`scripts/test gpu`.
"""

from __future__ import annotations

import re
import shutil

import pytest
import sampled
from fake_gpus import CHECKS
from gpu_checking import failures_of

from pycollective.arrays.gpu_arrays import is_on_gpu

FILES = ("gpu_checks.py", "gpu_host_checks.py", "jax_gpu_checks.py")
DECORATED = re.compile(r"^@(?:ranks\(\d+\)|check)\ndef (\w+)", re.MULTILINE)
NAMES = [name for file in FILES for name in DECORATED.findall((CHECKS / file).read_text())]
NAMES += [f"collectives_have_the_results_of_the_cpu_on_{size}" for size in (1, 2, 3, 4)]
pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ to make the fakes with")


@pytest.fixture(scope="module", params=sampled.some(("off", "on"), 1, of="PYCOLLECTIVE_STREAM_CHECK"))
def failed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Returns the tracebacks of the checks that failed."""
    folder = tmp_path_factory.mktemp("fakes")
    failures: dict[str, str] = {}
    for file in FILES:
        failures |= failures_of(CHECKS / file, folder, stream_check=request.param)
    return failures


@pytest.mark.parametrize("name", NAMES)
def test_on_fakes(failed: dict[str, str], name: str) -> None:
    assert name not in failed, failed[name]


def test_an_array_of_jax_over_several_devices_lies_on_no_gpu() -> None:
    class Spread:
        @property
        def __cuda_array_interface__(self) -> dict[str, object]:
            raise ValueError("supported only for unsharded arrays")  # the error of JAX

    assert not is_on_gpu(Spread())
