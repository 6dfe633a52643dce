"""scripts/budget: the time of each check beside its budget, and the tests that failed once."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.timeout(60)


def budget(parts: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "scripts/budget", *words],
        cwd=ROOT,
        env={**os.environ, "PYCOLLECTIVE_PARTS": str(parts)},
        capture_output=True,
        text=True,
        timeout=50,
    )


def write(parts: Path, *, wall_s: float, free: float = 1.0) -> None:
    row = {"name": "layers", "wall_s": wall_s, "processor_s": wall_s, "free": free, "status": 0}
    parts.write_text(json.dumps(row) + "\n")


def test_a_part_keeps_its_exit_status_and_stands_in_the_table(tmp_path: Path) -> None:
    parts = tmp_path / "parts"
    assert budget(parts, "run", "layers", "true").returncode == 0
    assert budget(parts, "run", "lint", "sh", "-c", "exit 3").returncode == 3
    table = budget(parts, "table", "100")
    assert table.returncode == 0, table.stderr
    rows = [line.split()[0] for line in table.stdout.splitlines() if line]
    assert rows == ["part", "layers", "lint", "all"]  # all but the setup
    assert "FAILED" in table.stdout


def test_a_part_that_takes_too_long_fails_the_table_and_is_named(tmp_path: Path) -> None:
    parts = tmp_path / "parts"
    write(parts, wall_s=100_000)
    table = budget(parts, "table", "1000000")
    assert table.returncode == 1
    assert "budget: TOO LONG: layers took 100000 s here" in table.stderr


def test_the_whole_has_a_limit_of_its_own(tmp_path: Path) -> None:
    parts = tmp_path / "parts"
    write(parts, wall_s=4)
    table = budget(parts, "table", "0.01")
    assert table.returncode == 1
    assert "all of it took 4 s here" in table.stderr


def test_a_slow_network_fails_nothing(tmp_path: Path) -> None:
    parts = tmp_path / "parts"
    parts.write_text(
        json.dumps({"name": "setup", "wall_s": 1e6, "processor_s": 1, "free": 1, "status": 0}) + "\n"
    )
    table = budget(parts, "table", "100")
    assert table.returncode == 0, table.stderr


def test_what_other_processes_took_is_allowed_for(tmp_path: Path) -> None:
    parts = tmp_path / "parts"
    write(parts, wall_s=100_000, free=1e-6)
    assert budget(parts, "table", "1000000").returncode == 0


def test_a_part_without_a_budget_is_refused(tmp_path: Path) -> None:
    done = budget(tmp_path / "parts", "run", "nonsense", "true")
    assert done.returncode == 1
    assert "has no budget" in done.stderr


CTEST = """#!/bin/bash
log=build/test/Testing/Temporary/LastTestsFailed.log
mkdir -p "${log%/*}"
case "$*" in
  *--rerun-failed*) exit "$AGAIN" ;;
  *) echo "7:base.Suite.Case" > "$log"; exit 8 ;;
esac
"""


@pytest.mark.parametrize(("again", "status", "flakes"), [("0", 0, "base.Suite.Case (test)\n"), ("8", 1, "")])
def test_a_cpp_test_that_fails_once_and_then_passes_is_named(
    tmp_path: Path, again: str, status: int, flakes: str
) -> None:
    for folder in ("scripts", ".venv/bin"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(ROOT / "scripts/ctest", tmp_path / "scripts")
    (tmp_path / ".venv/bin/ctest").write_text(CTEST)
    (tmp_path / ".venv/bin/ctest").chmod(0o755)
    named = tmp_path / "flakes"
    named.touch()
    environment = {**os.environ, "AGAIN": again, "PYCOLLECTIVE_FLAKES": str(named)}
    done = subprocess.run(["scripts/ctest", "test"], cwd=tmp_path, env=environment, timeout=50)
    assert done.returncode == status
    assert named.read_text() == flakes
    del environment["PYCOLLECTIVE_FLAKES"]
    assert (
        subprocess.run(["scripts/ctest", "test"], cwd=tmp_path, env=environment, timeout=50).returncode == 1
    )


def test_a_sample_has_every_plain_suite_and_a_share_of_the_cases_of_each_other() -> None:
    loader = importlib.machinery.SourceFileLoader("sample_ctest", str(ROOT / "scripts/sample_ctest"))
    spec = importlib.util.spec_from_loader("sample_ctest", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    plain = ["base.Suite", "base.Other.part_1_of_3"]
    names = [
        *plain,
        *[f"comm.Over/Suite.part_{part}_of_9" for part in range(1, 10)],
        "a.Few/S.part_1_of_2",
        "a.Few/S.part_2_of_2",
    ]
    for preset, of_nine in (("test", 3), ("asan", 2), ("tsan", 1)):
        numbers = module.chosen(names, 1, preset)
        assert {1, 2} <= set(numbers)  # the unmarked cases
        assert len(set(numbers) & set(range(3, 12))) == of_nine
        assert len(set(numbers) & {12, 13}) == 1
        assert numbers == module.chosen(names, 1, preset)
    drawn = [module.chosen(names, seed, "asan") for seed in range(100)]
    assert set().union(*drawn) == set(range(1, 14))  # every case runs over time
