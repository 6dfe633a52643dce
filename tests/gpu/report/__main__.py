"""`scripts/test gpu`: all that only a GPU can prove, in eight minutes and one final table."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from . import machine, parts, requirements, table
from .check import FAILED, SKIPPED, Check
from .ended import Ended, run
from .parts import LIMIT_S, ROOT, Part, Places
from .readers import listed_tests

ASK_S = 10.0  # for the list of tests


def environment(places: Places) -> dict[str, str]:
    env = {**os.environ, "PYTHONPATH": str(places.site), "PYTHONUNBUFFERED": "1"}
    if named := env.get("PYCOLLECTIVE_NCCL_LIB"):
        env["PYCOLLECTIVE_NCCL_LIB"] = str(Path(named).resolve())  # parts run in another folder
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
    except (ValueError, KeyError, TypeError) as error:  # of output with an unexpected form
        return [Check(part.name, "its output can be read", FAILED, repr(error))]


def run_parts(
    everything: Sequence[Part],
    env: Mapping[str, str],
    logs: Path,
    until: float,
    has_package: bool = True,
    done: Callable[[Sequence[Check]], None] = lambda _: None,
) -> list[Check]:
    """Runs the parts. `done` receives the checks of each part when it has ended."""
    checks: list[Check] = []
    for part in everything:
        if part.needs_package and not has_package:
            made = [Check(part.name, "all of it", SKIPPED, "not run: the package is not installed")]
        else:
            made = run_part(part, env, until - time.monotonic(), logs)
        checks += made
        done(made)
    return checks


@dataclass
class Report:
    """The table, rewritten whenever checks are added: a run that is killed leaves what it has."""

    logs: Path
    site: Path
    required: bool = False
    checks: list[Check] = field(default_factory=list)

    def add(self, more: Sequence[Check]) -> None:
        self.checks += [each.where_required() if self.required else each for each in more]
        self._write(["unfinished: parts are missing below, because the run has not come to its end"])

    def finish(self) -> str:
        return self._write([])

    def failed(self) -> bool:
        return any(each.outcome == FAILED for each in self.checks)

    def _write(self, notes: Sequence[str]) -> str:
        said = "".join(each.read_text(errors="replace") for each in sorted(self.logs.glob("bench_*.log")))
        here = [*notes, *machine.describe(self.site, said)]
        shown = table.text(here, self.checks)
        self._put("table.md", table.markdown(here, self.checks))
        self._put("checks.json", json.dumps([asdict(each) for each in self.checks], indent=1) + "\n")
        self._put("table.txt", shown)
        return shown

    def _put(self, name: str, text: str) -> None:
        """Replaces the file as a whole."""
        new = self.logs / f"{name}.new"
        new.write_text(text)
        new.replace(self.logs / name)


def checks_listed(said: Ended, part: str = "Python") -> tuple[list[str], list[str], list[Check]]:
    """Returns the checks in the lists of `on_gpu.py list` and `gpu list`: together, and alone.

    The third list has a failed check if the output is wrong.
    """
    names: dict[str, list[str]] = {"together": [], "alone": []}
    unknown = []
    for line in said.text.splitlines():
        kind, _, name = line.partition(": ")
        names.get(kind, unknown).append(name if kind in names else line)
    missing = [kind for kind, found in names.items() if not found]
    why = ""
    if said.code != 0:
        why = said.why()
    elif unknown:
        why = f"unknown: {unknown[0]}"
    elif missing:
        why = "it names none" + (f" that is made {missing[0]}" if len(missing) == 1 else "")
    wrong = [Check(part, "which tests there are", FAILED, why)] if why else []
    return names["together"], names["alone"], wrong


def gtests_listed(said: Ended) -> tuple[list[str], list[Check]]:
    names = listed_tests(said.text)
    if said.code == 0 and names:
        return names, []
    why = said.why() if said.code != 0 else "it names none"
    return names, [Check("C++", "which tests there are", FAILED, why)]


def make_all_checks(places: Places, env: Mapping[str, str], report: Report) -> None:
    until, logs = time.monotonic() + LIMIT_S, report.logs
    shutil.rmtree(places.site, ignore_errors=True)
    report.add([])  # so that the table of an earlier run is not taken for that of this one
    (package,) = run_parts([parts.install(places)], env, logs, until, done=report.add)
    installed = package.outcome != FAILED
    tests, wrong = gtests_listed(
        run([str(places.test_gpu), "--gtest_list_tests"], env, ASK_S, logs / "cpp_tests.log")
    )
    report.add(wrong)
    together: list[str] = []
    alone: list[str] = []
    named: list[str] = []
    if installed:
        script = [places.python, str(ROOT / "tests" / "gpu" / "card" / "on_gpu.py"), "list"]
        together, alone, wrong = checks_listed(run(script, env, ASK_S, logs / "python_checks.log"))
        report.add(wrong)
        users = parts.programs(places, [], logs)
        said = run([*users.command, "list"], {**env, **users.env}, ASK_S, logs / "programs_list.log")
        some, others, wrong = checks_listed(said, users.name)
        named = [*some, *others]
        report.add(wrong)
    cpp, sanitizer = parts.cpp(places, tests)
    doctor = [places.python, "-m", "pycollective", "doctor", "--gpu"]
    everything = [
        Part("doctor", doctor, 10, lambda _: []),  # for readers of the logs
        cpp,
        *parts.python_checks(places, together, alone),
        *parts.benchmarks(places),
        sanitizer,
        parts.programs(places, named, logs),
    ]
    run_parts(everything, env, logs, until, installed, report.add)


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/test gpu", description=__doc__)
    parser.add_argument(
        "--requirements", action="store_true", help="print the requirements of benchmarks/gpu.md, not run"
    )
    if parser.parse_args().requirements:
        print(requirements.markdown([]), end="")
        return 0
    places = parts.places_here()
    logs = Path(os.environ.get("OUT") or ROOT / "build" / "gpu" / "results").resolve()
    logs.mkdir(parents=True, exist_ok=True)
    report = Report(logs, places.site, os.environ.get("PYCOLLECTIVE_REQUIRE_GPU") == "1")
    make_all_checks(places, environment(places), report)
    print("\n" + report.finish())
    print(f"raw output, and this table as Markdown (table.md): {logs}")
    return int(report.failed())


if __name__ == "__main__":
    sys.exit(main())
