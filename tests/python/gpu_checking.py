"""Checks by name of arrays on GPUs: in a process of its own, on fakes of the driver and NCCL, ranks as threads.

A file of checks decorates them with @ranks(n) or @check and ends in run_checks(), which prints the tracebacks of those
that failed, by name, as JSON. Names as arguments: only these.
"""

from __future__ import annotations

import json
import re
import sys
import traceback
from collections.abc import Callable

import fake_gpus
from fake_gpus import Gpu

from pycollective import _core

__all__ = ["check", "on_ranks", "raises", "ranks", "run_checks"]

GPUS = 4
Check = Callable[[], None]
CHECKS: dict[str, Check] = {}
DRIVERS: list[fake_gpus.Driver] = []  # one, once checks are run


def on_ranks(size: int, body: Callable[[_core.Group, Gpu], None]) -> None:
    fake_gpus.on_ranks(size, body, DRIVERS[0])


def check(function: Check) -> Check:
    CHECKS[function.__name__] = function
    return function


def ranks(size: int) -> Callable[[Callable[[_core.Group, Gpu], None]], Check]:
    """The function is a check, made by each of so many ranks."""

    def decorated(body: Callable[[_core.Group, Gpu], None]) -> Check:
        def run() -> None:
            on_ranks(size, body)

        run.__name__ = body.__name__
        return check(run)

    return decorated


def raises(kind: type[Exception], text: str, call: Callable[[], object]) -> None:
    try:
        call()
    except kind as error:
        assert re.search(text, str(error)), f"{error} has no {text!r}"
    else:
        raise AssertionError(f"no {kind.__name__}")


def run_checks() -> None:
    DRIVERS.append(fake_gpus.Driver(GPUS))
    failed = {}
    for name, each in CHECKS.items():
        if len(sys.argv) > 1 and name not in sys.argv[1:]:
            continue
        print(name, file=sys.stderr, flush=True)
        try:
            each()
        except BaseException:
            failed[name] = traceback.format_exc()
    print(json.dumps(failed))
