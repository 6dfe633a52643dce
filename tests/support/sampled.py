"""The daily share of what is too much for every day: chosen by a seed that pytest prints. The full run has all of it.

PYCOLLECTIVE_TEST_SEED=<number> chooses the same again. PYCOLLECTIVE_TEST_MATRIX=full, as scripts/test full sets it,
leaves nothing out.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Sequence
from typing import TypeVar

import pytest

FULL = os.environ.get("PYCOLLECTIVE_TEST_MATRIX") == "full"
# Left in the environment: the workers of pytest-xdist must collect the same tests.
SEED = os.environ.setdefault("PYCOLLECTIVE_TEST_SEED", str(random.randrange(1_000_000)))

T = TypeVar("T")


def header() -> str:
    return "matrix: full" if FULL else f"matrix: the sample of PYCOLLECTIVE_TEST_SEED={SEED}"


def daily(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves as many cases of each test as its mark `daily` says, and those marked `skip`, which cost nothing.

    All of them where -k or `::` chooses tests.
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
    """So many of the values, in their order; all in the full run. `of`: what they are, for a choice of its own.

    To be called where tests are collected. In a rank it would choose others: pass it what is chosen. What it leaves
    out is found by -k and `::` too only with the seed that chooses it, or in the full matrix.
    """
    if FULL or count >= len(values):
        return list(values)
    places = random.Random(f"{SEED} {of}").sample(range(len(values)), count)
    return [values[place] for place in sorted(places)]
