"""Checks by name of arrays on GPUs, in a process of its own, on fakes of the driver and NCCL.

Ranks are threads. A file of checks decorates them with @ranks(n) or @check and ends in
run_checks(), which prints the tracebacks of those that failed, by name, as JSON. Names as arguments
select only these. A check with hanging ranks is the last one, since they hold GPUs.
"""

from __future__ import annotations

import faulthandler
import json
import os
import re
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import fake_gpus
from fake_gpus import Gpu

from pycollective import _core

__all__ = ["DRIVERS", "check", "failures_of", "on_ranks", "raises", "ranks", "run_checks"]

GPUS = 4
Check = Callable[[], None]
CHECKS: dict[str, Check] = {}
DRIVERS: list[fake_gpus.Driver] = []  # holds one driver once checks run


def on_ranks(size: int, body: Callable[[_core.Group, Gpu], None]) -> None:
    fake_gpus.on_ranks(size, body, DRIVERS[0])


def check(function: Check) -> Check:
    CHECKS[function.__name__] = function
    return function


def ranks(size: int) -> Callable[[Callable[[_core.Group, Gpu], None]], Check]:
    """Makes the function a check that each of `size` ranks runs."""

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
    names = [name for name in CHECKS if len(sys.argv) == 1 or name in sys.argv[1:]]
    failed = {}
    for name in names:
        print(name, file=sys.stderr, flush=True)
        # in case no thread gets the GIL
        faulthandler.dump_traceback_later(2 * fake_gpus.DEADLINE_S, exit=True)
        try:
            CHECKS[name]()
        except fake_gpus.Hangs:
            faulthandler.dump_traceback()
            later = names[names.index(name) + 1 :]
            failed |= {name: "it hangs"} | dict.fromkeys(later, f"not made: {name} hangs")
            print(json.dumps(failed), flush=True)
            os._exit(0)
        except BaseException:
            failed[name] = traceback.format_exc()
    missing = {name: "there is no such check" for name in {*sys.argv[1:]} - CHECKS.keys()}
    print(json.dumps(failed | missing))


def failures_of(
    checks: Path, folder: Path, names: Sequence[str] = (), stream_check: str = "off"
) -> dict[str, str]:
    """Returns, by name, the tracebacks of these checks of the file, or of all, that failed.

    The fakes are placed in the folder.
    """
    variables = {
        "PYTHONPATH": fake_gpus.PYTHONPATH,
        "PYCOLLECTIVE_STREAM_CHECK": stream_check,
        "PYCOLLECTIVE_CUDA_LIB": str(fake_gpus.build_cuda(folder)),
        "PYCOLLECTIVE_NCCL_LIB": str(fake_gpus.build_nccl(folder)),
    }
    words = [sys.executable, "-X", "faulthandler", checks, *names]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, env=os.environ | variables)
    assert done.returncode == 0, done.stderr
    failures: dict[str, str] = json.loads(done.stdout)
    return failures
