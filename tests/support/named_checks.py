"""Checks by name: one launch of ranks runs many, and each is reported as a test of its own.

    CHECKS = Checks()

    @CHECKS.on(2, 3)
    def ranks_add_up() -> None:  # what every rank does, in a world of 2 and in one of 3
        assert pc.allreduce(1) == pc.size()

    @pytest.mark.parametrize(("size", "name"), CHECKS.rows())
    def test_on_every_rank(size: int, name: str) -> None:
        assert_passed(__name__, size, name)

Every check has a world of its own, which takes milliseconds, so a check that fails leaves no call
over for the next. The daily run runs each check in one of its sizes, the full run in all of them
(sampled.py).
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import traceback
from collections.abc import Callable

import pytest
import sampled

import pycollective as pc
from pycollective import testing

__all__ = ["Checks", "assert_passed"]

Check = Callable[[], None]


class Checks:
    """The checks of a module, which has them under the name CHECKS."""

    def __init__(self) -> None:
        self.by_name: dict[str, Check] = {}
        self.sizes: dict[str, tuple[int, ...]] = {}

    def on(self, *sizes: int) -> Callable[[Check], Check]:
        """Makes the function a check in worlds of these sizes. Its name states what it promises."""

        def add(function: Check) -> Check:
            self.add(function.__name__, function, *sizes)
            return function

        return add

    def add(self, name: str, function: Check, *sizes: int) -> None:
        assert name not in self.by_name, name
        self.by_name[name], self.sizes[name] = function, sizes

    def rows(self) -> list[tuple[int, str]]:
        return [
            (size, name) for name, sizes in self.sizes.items() for size in sampled.some(sizes, 1, of=name)
        ]


def assert_passed(module: str, size: int, name: str) -> None:
    failures = _failures(module, size)
    assert not isinstance(failures, testing.WorldFailed), str(failures)
    reports = [f"rank {rank}: {failed[name]}" for rank, failed in enumerate(failures) if name in failed]
    assert not reports, "\n".join(reports)


@functools.cache
def _failures(module: str, size: int) -> list[dict[str, str]] | testing.WorldFailed:
    names = [name for of_size, name in importlib.import_module(module).CHECKS.rows() if of_size == size]
    try:
        return testing.run(on_this_rank, size, module, names, init=False, timeout_s=100)
    except testing.WorldFailed as failed:  # returned, so that it is cached: every check would launch again
        return failed


def on_this_rank(module: str, names: list[str]) -> dict[str, str]:
    """Returns the tracebacks of the checks that failed on this rank."""
    checks: Checks = importlib.import_module(module).CHECKS
    failed = {}
    for name in names:
        try:
            _in_a_world(checks.by_name[name])
        except (Exception, pytest.fail.Exception):  # pytest.raises: DID NOT RAISE is no Exception
            failed[name] = traceback.format_exc()
    return failed


def _in_a_world(check: Check) -> None:
    pc.init(timeout=20)
    try:
        check()
        pc.shutdown()
    finally:
        with contextlib.suppress(
            pc.CollectiveError
        ):  # of a check that failed: the other ranks may be in another call
            pc.shutdown()
