"""PyTorch's tools for training give the same numbers on our backend as on gloo.

torch_trainers.py has the programs, for 2 ranks.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sampled
from launchers import torch

from pycollective import testing

if torch() is not None:
    pytest.skip(str(torch()), allow_module_level=True)

REFERENCE, OURS = "gloo", "pycollective"
DEADLINE_S = 90.0
pytestmark = pytest.mark.timeout(DEADLINE_S + 30)  # the first test waits for all programs
# Read as text, because its imports take seconds and only the ranks need them.
TEXT = Path(__file__).with_name("torch_trainers.py").read_text()
EVERY = re.findall(r"^@program\ndef (\w+)", TEXT, re.M)
# compiles C++ on both ranks, which takes as long as all others together
COMPILES = "functional_collectives_through_inductor"
PROGRAMS = (
    EVERY if sampled.FULL else sampled.some([each for each in EVERY if each != COMPILES], 8, of="trainers")
)


def programs(folder: str, names: list[str]) -> dict[str, dict[str, Any]]:
    import torch_trainers

    return torch_trainers.run(folder, [REFERENCE, OURS], names)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, dict[str, Any]]]:
    """Returns program, backend and numbers, for both ranks."""
    folder = str(tmp_path_factory.mktemp("trainers"))
    env = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor"}
    return testing.run(programs, 2, folder, PROGRAMS, init=False, timeout_s=DEADLINE_S, env=env)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_computes_the_same_as_on_gloo(name: str, outcomes: list[dict[str, Any]]) -> None:
    for rank, of_rank in enumerate(outcomes):
        for backend, numbers in of_rank[name].items():
            assert not isinstance(numbers, str), f"rank {rank} on {backend}:\n{numbers}"
        expected, found = of_rank[name][REFERENCE], of_rank[name][OURS]
        assert len(found) == len(expected) > 0
        for theirs, ours in zip(expected, found, strict=True):
            assert np.isfinite(theirs).all()
            np.testing.assert_array_equal(ours, theirs, err_msg=f"rank {rank}")
