"""`scripts/test gpu`: everything that only a GPU can prove, within eight minutes, and one table at its end."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from . import bars, machine, parts, table
from .check import FAILED, SKIPPED, Check
from .ended import Ended, run
from .parts import LIMIT_S, ROOT, Part, Places
from .readers import listed_tests

ASK_S = 10.0  # which tests there are


def environment(places: Places) -> dict[str, str]:
    env = {**os.environ, "PYTHONPATH": str(places.site), "PYTHONUNBUFFERED": "1"}
    if "PYCOLLECTIVE_NCCL_LIB" not in env and (library := machine.nccl_of_python()):
        env["PYCOLLECTIVE_NCCL_LIB"] = library
    return env


def run_part(part: Part, env: Mapping[str, str], left_s: float, logs: Path) -> list[Check]:
    if part.instead:
        return list(part.instead)
    if left_s <= 0:
        return [
            Check(part.name, "all of it", SKIPPED, f"not run: the {LIMIT_S:.0f} s of all parts were over")
        ]
    deadline_s = min(part.deadline_s, left_s)
    print(f"test: {part.name} (at most {deadline_s:.0f} s)", flush=True)
    ended = run(part.command, {**env, **part.env}, deadline_s, logs / f"{part.name}.log")
    try:
        return part.read(ended)
    except (ValueError, KeyError, TypeError) as error:  # of output that nobody has foreseen
        return [Check(part.name, "its output can be read", FAILED, repr(error))]


def run_parts(
    everything: Sequence[Part], env: Mapping[str, str], logs: Path, until: float, has_package: bool = True
) -> list[Check]:
    checks: list[Check] = []
    for part in everything:
        if part.needs_package and not has_package:
            checks.append(Check(part.name, "all of it", SKIPPED, "not run: the package is not installed"))
            continue
        checks += run_part(part, env, until - time.monotonic(), logs)
    return checks


def all_checks(places: Places, env: Mapping[str, str], logs: Path) -> list[Check]:
    until = time.monotonic() + LIMIT_S
    shutil.rmtree(places.site, ignore_errors=True)
    checks = run_parts([parts.install(places)], env, logs, until)
    installed = checks[0].outcome != FAILED
    listed = run([str(places.test_gpu), "--gtest_list_tests"], env, ASK_S, logs / "cpp_tests.log")
    script = [places.python, str(ROOT / "tests" / "on_gpu.py"), "list"]
    said = run(script, env, ASK_S, logs / "python_checks.log") if installed else Ended(0, "")
    names = said.text.splitlines()
    for part, asked in (("C++", listed), ("Python", said)):
        if asked.code != 0:
            checks.append(Check(part, "which tests there are", FAILED, asked.why()))
    together, alone = (
        [line.partition(": ")[2] for line in names if line.startswith(kind)]
        for kind in ("together: ", "alone: ")
    )
    cpp, sanitizer = parts.cpp(places, listed_tests(listed.text))
    python = parts.python_checks(places, together, alone)
    doctor = [places.python, "-m", "pycollective", "doctor", "--gpu"]
    everything = [
        Part("doctor", doctor, 10, lambda _: []),  # for who reads the logs
        cpp,
        *python,
        *parts.benchmarks(places),
        sanitizer,
    ]
    return checks + run_parts(everything, env, logs, until, installed)


def write(logs: Path, checks: Sequence[Check], site: Path) -> str:
    said = "".join(each.read_text(errors="replace") for each in sorted(logs.glob("bench_*.log")))
    here = machine.describe(site, said)
    (logs / "table.md").write_text(table.markdown(here, checks))
    (logs / "checks.json").write_text(json.dumps([asdict(each) for each in checks], indent=1) + "\n")
    shown = table.text(here, checks)
    (logs / "table.txt").write_text(shown)
    return shown


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/test gpu", description=__doc__)
    parser.add_argument("--bars", action="store_true", help="print the bars of benchmarks/gpu.md, not run")
    if parser.parse_args().bars:
        print(bars.markdown([]), end="")
        return 0
    places = parts.places_here()
    logs = Path(os.environ["OUT"]) if os.environ.get("OUT") else ROOT / "build" / "gpu" / "results"
    logs.mkdir(parents=True, exist_ok=True)
    checks = all_checks(places, environment(places), logs)
    if os.environ.get("PYCOLLECTIVE_REQUIRE_GPU") == "1":
        checks = [each.where_required() for each in checks]
    print("\n" + write(logs, checks, places.site))
    print(f"raw output, and this table as Markdown (table.md): {logs}")
    return int(any(each.outcome == FAILED for each in checks))


if __name__ == "__main__":
    sys.exit(main())
