"""The programs of tests/gpu on the CPU, and how their runner reports failures and hangs.

Some programs cannot be run, which the runner reports, too.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import waiting

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests"))

from gpu import runner  # noqa: E402
from gpu.report import check, readers  # noqa: E402
from gpu.report.ended import Ended  # noqa: E402
from gpu.runner import FAILED, NOT_MADE, PASSED, Outcome, Runner  # noqa: E402
from gpu.table import FOLDER, KILLED, PROGRAMS, TORCHRUN, Program  # noqa: E402

LATE_S = 60.0
pytestmark = pytest.mark.timeout(max(each.deadline_s for each in PROGRAMS) + 30)


def drawn_if_it_can_be_run(program: Program) -> Any:
    why = runner.why_not(program, "cpu", sys.executable)
    return pytest.param(program, marks=[pytest.mark.skip(reason=why)] if why else [])


@pytest.mark.daily(5)
@pytest.mark.parametrize(
    "program", [drawn_if_it_can_be_run(each) for each in PROGRAMS if not each.needs_gpu], ids=str
)
def test_a_program_proves_what_it_promises(program: Program, tmp_path: Path) -> None:
    outcome = Runner("cpu", tmp_path).run(program)
    assert outcome.how == PASSED, f"{outcome.line()}\n{(tmp_path / f'{program}.log').read_text()}"


def test_every_program_has_a_row_and_every_row_a_program() -> None:
    files = {each.name for each in FOLDER.glob("*.py")} - {"program_context.py"}
    assert {each.script.name for each in PROGRAMS} == files
    names = [each.name for each in PROGRAMS]
    assert len(names) == len({*names})


def outcome_of(folder: Path, text: str, **how: Any) -> Outcome:
    """Returns the outcome of a program with this text."""
    (folder / "tiny.py").write_text(text)
    program = Program("tiny", **{"needs": (), "deadline_s": LATE_S, "folder": folder, **how})
    return Runner("cpu", folder).run(program)


FAILS_ON_RANK_1 = """
import os
import pycollective as pc
pc.init()
if pc.rank() == 1:
    total = 3
    assert total == 4
pc.barrier()
"""


def test_a_program_that_is_wrong_on_one_rank_has_failed_with_that_ranks_line(tmp_path: Path) -> None:
    outcome = outcome_of(tmp_path, FAILS_ON_RANK_1)
    assert (outcome.how, outcome.said) == (FAILED, "AssertionError: assert total == 4")


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_so_it_has_under_torchrun(tmp_path: Path) -> None:
    wrong = "import os\nif os.environ['RANK'] == '1':\n    raise ValueError('no such number: 7')\n"
    outcome = outcome_of(tmp_path, wrong, launcher=TORCHRUN)
    assert (outcome.how, outcome.said) == (FAILED, "ValueError: no such number: 7")
    outcome = outcome_of(
        tmp_path, "print('cannot be run here: no card')\nraise SystemExit(77)", launcher=TORCHRUN
    )
    assert (outcome.how, outcome.said) == (NOT_MADE, "no card")


def lives(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


HANGS = """
import os, threading
from pathlib import Path
place = Path(os.environ["PIDS"], os.environ["RANK"])
place.with_suffix(".new").write_text(str(os.getpid()))
place.with_suffix(".new").rename(place)
print("waits for ever", flush=True)
threading.Event().wait()
"""


@pytest.mark.parametrize("launcher", ["pycollective run", TORCHRUN])
def test_a_program_that_hangs_ends_at_its_deadline_with_all_its_ranks(tmp_path: Path, launcher: str) -> None:
    if launcher == TORCHRUN and importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    deadline_s = 6.0 if launcher == TORCHRUN else 3.0  # until the ranks have printed what they are
    outcome = outcome_of(
        tmp_path, HANGS, env={"PIDS": str(tmp_path)}, launcher=launcher, deadline_s=deadline_s
    )
    assert outcome.how == FAILED
    assert outcome.said.startswith(f"its deadline of {deadline_s:.0f} s passed"), outcome
    assert deadline_s <= outcome.seconds < LATE_S, outcome
    pids = [int(place.read_text()) for place in tmp_path.glob("[01]")]
    assert waiting.eventually(lambda: not any(map(lives, pids))), pids


def test_programs_that_are_stopped_end_with_all_their_ranks(tmp_path: Path) -> None:
    (tmp_path / "tiny.py").write_text(HANGS)
    row = Program("tiny", needs=(), env={"PIDS": str(tmp_path)}, deadline_s=LATE_S, folder=tmp_path)
    its_runner, said = Runner("cpu", tmp_path), list[Outcome]()
    thread = threading.Thread(target=lambda: said.append(its_runner.run(row)))
    thread.start()
    assert waiting.eventually(lambda: all((tmp_path / rank).exists() for rank in "01"))
    its_runner.stop()
    thread.join(LATE_S)
    assert [each.how for each in said] == [FAILED]
    assert not any(lives(int((tmp_path / rank).read_text())) for rank in "01")


def test_a_program_that_cannot_be_run_says_why(tmp_path: Path) -> None:
    outcome = outcome_of(tmp_path, "print('cannot be run here: no card')\nraise SystemExit(77)\n")
    assert (outcome.how, outcome.said) == (NOT_MADE, "no card")
    outcome = outcome_of(tmp_path, "raise SystemExit(77)\n")
    assert outcome.how == FAILED
    assert outcome.said.startswith("ended with code 77: pycollective run: rank "), outcome
    assert outcome_of(tmp_path, "", needs_gpu=True).said == "it needs a GPU"
    assert (
        outcome_of(tmp_path, "", needs=("numpy", "no_such_library")).said
        == "no_such_library is not installed"
    )


KILLS_RANK_1 = """
import os, signal
import numpy as np
import pycollective as pc
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pc.init()
pc.barrier()
if pc.rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    pc.allreduce(np.ones(1), timeout=30)
except pc.PeerFailure:
    print("proved: heard of it", flush=True)
"""


def test_a_rank_that_is_killed_is_expected_or_the_cause(tmp_path: Path) -> None:
    outcome = outcome_of(tmp_path, KILLS_RANK_1, ends=KILLED)
    assert (outcome.how, outcome.said) == (PASSED, "heard of it")
    outcome = outcome_of(tmp_path, KILLS_RANK_1)
    assert outcome.how == FAILED
    assert outcome.said.startswith("ended with code 137: pycollective run: rank 1 "), outcome
    assert outcome_of(tmp_path, "print('proved: it')", ends=KILLED).how == FAILED


def test_a_program_that_says_nothing_has_proved_nothing(tmp_path: Path) -> None:
    outcome = outcome_of(tmp_path, "print('fine')\n")
    assert outcome.how == FAILED
    assert outcome.said == "it ended with code 0, and has not said what it has proved"


def test_the_cause_is_not_what_other_ranks_say_of_its_end() -> None:
    said = """Traceback (most recent call last):
  File "a.py", line 3, in <module>
    pc.barrier()
pycollective.errors.PeerFailure: rank 0: rank 1 failed: its connection closed
[rank1]: Traceback (most recent call last):
[rank1]:   File "a.py", line 2, in <module>
[rank1]:     assert x == 3
[rank1]:            ^^^^^^
[rank1]: AssertionError
"""
    assert runner.first_cause(said) == "AssertionError: assert x == 3"
    alone = said.partition("[rank1]")[0]
    assert runner.first_cause(alone).startswith("pycollective.errors.PeerFailure: rank 0: rank 1 failed")
    handled = f"{alone}\nDuring handling of the above exception, another exception occurred:\n\n{said}"
    assert runner.first_cause(handled) == "AssertionError: assert x == 3"
    mismatch = alone.replace("PeerFailure", "CollectiveMismatch")
    handled = f"{mismatch}\nDuring handling of the above exception, another exception occurred:\n\n{said}"
    assert runner.first_cause(handled) == "AssertionError: assert x == 3"
    assert runner.first_cause("nothing of that kind\n") == ""


def test_programs_that_run_alone_come_last_and_none_begins_when_the_time_is_over(tmp_path: Path) -> None:
    (tmp_path / "tiny.py").write_text("print('proved: it')\n")
    rows = [Program(name, 1, (), "tiny", alone=name == "a", folder=tmp_path) for name in "abc"]
    said: list[Outcome] = []
    outcomes = Runner("cpu", tmp_path).run_all(rows, 2, said.append)
    assert said == outcomes
    assert [each.how for each in outcomes] == [PASSED] * 3
    assert outcomes[-1].name == "a"
    (late,) = Runner("cpu", tmp_path, until=time.monotonic()).run_all(rows[:1], 1, said.append)
    assert (late.how, late.said) == (FAILED, "not begun: the time of all programs was over")


def command(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", "gpu", *words],
        env={**os.environ, "PYTHONPATH": path, **env},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=LATE_S,
        check=False,
    )


def test_the_command_prints_a_line_for_each_and_its_code_says_whether_one_is_wrong() -> None:
    listed = command("list").stdout.splitlines()
    assert listed == [f"{'alone' if each.alone else 'together'}: {each}" for each in PROGRAMS]
    words = ["--device", "cpu", "--only", "full_memory,graph_capture_by_nccl"]
    done = command(*words)
    lines = done.stdout.splitlines()
    assert lines == [
        "not made  graph_capture_by_nccl: it needs a GPU",
        "not made  full_memory: it needs a GPU",
        "0 passed, 0 failed, 2 not made",
    ]
    assert done.returncode == 0, done.stderr
    read = readers.read_on_gpu("programs", ["full_memory", "ddp"], Ended(0, done.stdout))
    assert [(each.name, each.outcome) for each in read] == [
        ("graph_capture_by_nccl", check.SKIPPED),
        ("full_memory", check.SKIPPED),
        ("ddp", check.FAILED),
    ], json.dumps(done.stdout)
    assert command(*words, PYCOLLECTIVE_REQUIRE_GPU="1").returncode == 1
    wrong = command("--only", "no_such_program")
    assert wrong.returncode == 2
    assert "there is no program 'no_such_program'; `list` names them" in wrong.stderr
    assert "example: " in command("--help").stdout
