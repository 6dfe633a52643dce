"""Every case of the matrix in tests/python/calls/matrix.py has NumPy's result.

Runs a seeded sample by default, and all of it with PYCOLLECTIVE_TEST_MATRIX=full, as scripts/test
full does.
"""

from __future__ import annotations

import os

import matrix
import pytest
import sampled

from pycollective import testing

FULL = os.environ.get("PYCOLLECTIVE_TEST_MATRIX") == "full"
SHARE = 1.0 if FULL else 0.03
SEED = int(sampled.SEED)
SLICES = 4 if FULL else 1  # of a world's cases, each a test with a deadline of its own
FULL_S = 600.0


@pytest.mark.daily(4)
@pytest.mark.timeout(FULL_S + 60 if FULL else 120)
@pytest.mark.parametrize("part", range(SLICES))
@pytest.mark.parametrize("n", matrix.RANKS)
def test_every_case_of_the_matrix_is_exact(n: int, part: int, capsys: pytest.CaptureFixture[str]) -> None:
    outcomes = testing.run(matrix.run, n, SHARE, SEED, part, SLICES, timeout_s=FULL_S if FULL else 100)
    wrong = [said for _, words in outcomes for said in words]
    assert not wrong, "\n".join(wrong)
    with capsys.disabled():
        print(f"matrix: {outcomes[0][0]} of {sum(1 for _ in matrix.cases(n))} cases with {n} ranks")
    assert outcomes[0][0] > 100


def test_the_matrix_has_at_least_twenty_thousand_cases() -> None:
    assert sum(sum(1 for _ in matrix.cases(n)) for n in matrix.RANKS) >= 20_000
