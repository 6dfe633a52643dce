"""The daily sample of tests that are too many for every day. The full run has all of them.

pytest prints the seed that selects the sample, and PYCOLLECTIVE_TEST_SEED=<number> selects the same
sample again. With PYCOLLECTIVE_TEST_MATRIX=full, which scripts/test full sets, nothing is omitted.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Sequence
from typing import TypeVar

import pytest

FULL = os.environ.get("PYCOLLECTIVE_TEST_MATRIX") == "full"
# Stored in the environment, because the workers of pytest-xdist must collect the same tests.
SEED = os.environ.setdefault("PYCOLLECTIVE_TEST_SEED", str(random.randrange(1_000_000)))

T = TypeVar("T")


def header() -> str:
    return "matrix: full" if FULL else f"matrix: the sample of PYCOLLECTIVE_TEST_SEED={SEED}"


def daily(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps as many cases of each test as its mark `daily` gives.

    It also keeps those marked `skip`, which cost nothing, and all of them if -k or `::` selects
    tests.
    """
    if FULL or config.option.keyword or any("::" in word for word in config.args):
        return
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("daily") and not item.get_closest_marker("skip"):
            cases[item.nodeid.partition("[")[0]].append(item)
    left_out = set()
    for test, each in cases.items():
        (count,) = each[0].get_closest_marker("daily").args  # type: ignore[union-attr]
        left_out |= {*each} - {*some(each, count, of=test)}
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=[*left_out])


def some(values: Sequence[T], count: int, *, of: str = "") -> list[T]:
    """Returns `count` of the values in their order, or all in the full run.

    `of` names the values, so that each use has a choice of its own. Call it where tests are
    collected: a rank would choose other values, so pass the choice to the rank. -k and `::` find an
    omitted value only with the seed that chooses it, or in the full matrix.
    """
    if FULL or count >= len(values):
        return list(values)
    places = random.Random(f"{SEED} {of}").sample(range(len(values)), count)
    return [values[place] for place in sorted(places)]
