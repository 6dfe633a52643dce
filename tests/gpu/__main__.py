"""Programs as users write them, run on a GPU or on the CPU: one line for what each has proved.

Ends with 1 if one failed, or, with PYCOLLECTIVE_REQUIRE_GPU=1, if one could not be run here.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType

from .runner import FAILED, NOT_MADE, PASSED, Outcome, Runner
from .table import PROGRAMS, Program

EXAMPLE = "example: PYTHONPATH=tests python -m gpu --device cpu --only ddp,fsdp2"


def chosen(parser: argparse.ArgumentParser, only: str | None) -> list[Program]:
    names = [] if only is None else only.split(",")
    known = {each.name: each for each in PROGRAMS}
    if unknown := [name for name in names if name not in known]:
        parser.error(f"there is no program {unknown[0]!r}; `list` names them")
    return [each for each in PROGRAMS if only is None or each.name in names]


def printed(outcome: Outcome) -> None:
    print(outcome.line(), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m gpu", description=__doc__, epilog=EXAMPLE)
    parser.add_argument("what", nargs="?", choices=["run", "list"], default="run")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--only", metavar="NAME,...", help="these programs alone")
    parser.add_argument("--at-once", metavar="N", type=int, default=max((os.cpu_count() or 2) // 4, 1))
    parser.add_argument(
        "--within", metavar="SECONDS", type=float, default=float("inf"), help="for all of them"
    )
    parser.add_argument("--logs", metavar="FOLDER", type=Path, help="where all that they say is kept")
    given = parser.parse_args()
    programs = chosen(parser, given.only)
    if given.what == "list":
        for program in programs:
            print(f"{'alone' if program.alone else 'together'}: {program.name}")
        return 0
    with tempfile.TemporaryDirectory() as passing:
        logs = given.logs or Path(passing)
        logs.mkdir(parents=True, exist_ok=True)
        runner = Runner(given.device, logs.resolve(), time.monotonic() + given.within)

        def stop(number: int, frame: FrameType | None) -> None:
            runner.stop()
            os._exit(128 + number)

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, stop)
        outcomes = runner.run_all(programs, max(given.at_once, 1), printed)
    ended = [each.how for each in outcomes]
    print(", ".join(f"{ended.count(how)} {how}" for how in (PASSED, FAILED, NOT_MADE)))
    required = os.environ.get("PYCOLLECTIVE_REQUIRE_GPU") == "1"
    return int(FAILED in ended or (required and NOT_MADE in ended))


if __name__ == "__main__":
    sys.exit(main())
