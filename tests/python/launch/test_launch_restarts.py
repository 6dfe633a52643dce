"""`pycollective run --max-restarts`: after a failure all ranks start anew.

They connect to no earlier rank.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from test_launch import DEADLINE_S, READY, WAIT, command, pids_of, program, run, started, wait_until_gone

pytestmark = pytest.mark.timeout(90)
__all__ = ["program"]  # a fixture
ATTEMPT = "attempt = int(os.environ['PYCOLLECTIVE_RESTART_COUNT'])"
KEY = "key = os.pread(int(os.environ['PYCOLLECTIVE_KEY_FD']), 100, 0).hex()"
FAILS_TWICE = "if rank == 1 and attempt < 2: sys.exit(7 + attempt)"
# Rank 0 has printed before rank 1 fails: each waits for the other to open the pipe.
MEET_AT_A_PIPE = (
    "if attempt < 2: open(os.path.join(os.path.dirname(__file__), f'pipe{attempt}'), 'wr'[rank]).close()"
)
ANEW = "pycollective run: all ranks are started anew: restart"


@pytest.fixture
def pipes(tmp_path: Path) -> None:
    for attempt in range(2):
        os.mkfifo(tmp_path / f"pipe{attempt}")


@pytest.mark.usefixtures("pipes")
def test_ranks_are_started_anew_with_a_new_key_until_none_fails(program: Callable[..., str]) -> None:
    says = "print(attempt, key, os.environ['PYCOLLECTIVE_STORE'])"
    script = program(ATTEMPT, KEY, says, MEET_AT_A_PIPE, FAILS_TWICE)
    done = run("-n", "2", "--max-restarts", "3", script)
    assert done.returncode == 0
    said = sorted(line.split() for line in done.stdout.splitlines())
    assert [each[:2] for each in said] == [[f"[{r}]", str(a)] for r in range(2) for a in range(3)]
    assert [each[2:] for each in said[:3]] == [each[2:] for each in said[3:]]  # both ranks have the same key
    assert len({each[2] for each in said}) == len({each[3] for each in said}) == 3
    assert [line for line in done.stderr.splitlines() if line.startswith(ANEW)] == [
        f"{ANEW} {number} of at most 3" for number in (1, 2)
    ]
    assert done.stderr.count("rank 1 failed first (exit code ") == 2


def test_after_the_last_restart_the_exit_code_is_that_of_the_last_failure(
    program: Callable[..., str],
) -> None:
    script = program(ATTEMPT, "if rank == 1: sys.exit(7 + attempt)", WAIT)
    done = run("-n", "2", "--max-restarts", "1", script)
    assert done.returncode == 8
    assert done.stderr.count(ANEW) == 1


def test_without_the_option_nothing_is_restarted(program: Callable[..., str]) -> None:
    done = run("-n", "2", program(ATTEMPT, FAILS_TWICE, WAIT))
    assert done.returncode == 7
    assert ANEW not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_rank_that_requests_a_stop_gets_one(program: Callable[..., str], number: signal.Signals) -> None:
    script = program("signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))", READY, WAIT)
    with started("-n", "2", "--max-restarts", "5", script) as process:
        pids = pids_of(process, 2)
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=DEADLINE_S)
        assert (process.returncode, stdout) == (128 + number, "")
        assert ANEW not in stderr
        wait_until_gone(pids)


def test_ranks_that_are_killed_are_started_anew_and_none_is_left(program: Callable[..., str]) -> None:
    script = program(ATTEMPT, READY, f"if attempt == 0: {WAIT}")
    with started("-n", "2", "--max-restarts", "1", script) as process:
        pids = pids_of(process, 2)
        os.kill(pids[0], signal.SIGKILL)
        wait_until_gone(pids)
        assert len(pids_of(process, 2)) == 2
        assert process.wait(DEADLINE_S) == 0


def test_a_program_that_cannot_be_started_is_not_started_again(tmp_path: Path) -> None:
    done = run("-n", "1", "--max-restarts", "3", str(tmp_path / "missing"))
    assert done.returncode == 127
    assert ANEW not in done.stderr


@pytest.mark.usefixtures("pipes")
def test_every_attempt_has_log_files_of_its_own(program: Callable[..., str], tmp_path: Path) -> None:
    says = "print('out', attempt); print('err', attempt, file=sys.stderr)"
    script = program(ATTEMPT, says, MEET_AT_A_PIPE, FAILS_TWICE)
    logs = tmp_path / "logs"
    done = run("-n", "2", "--max-restarts", "2", "--log-dir", str(logs), script)
    assert done.returncode == 0
    assert f"logs: {logs}/restart1. Its last lines:\nerr 1" in done.stderr
    for attempt, folder in enumerate((logs, logs / "restart1", logs / "restart2")):
        files = sorted(path for path in folder.iterdir() if path.is_file())
        assert [path.name for path in files] == ["rank0.err", "rank0.out", "rank1.err", "rank1.out"]
        assert [path.read_text() for path in files] == [f"err {attempt}\n", f"out {attempt}\n"] * 2


BETWEEN_ATTEMPTS = """
import os, signal, sys, threading
from pycollective import cli
from pycollective.launching import report
message, asked = report.message, signal.Signals[sys.argv.pop(1)]
def signalled(what, **more):
    message(what, **more)
    if "anew" in what:
        message(f"threads: {threading.active_count()}")
        os.kill(os.getpid(), asked)
report.message = signalled
sys.exit(cli.main())
"""


@pytest.mark.parametrize(("name", "code"), [("SIGUSR1", 0), ("SIGINT", 130), ("SIGTERM", -15)])
def test_a_signal_between_two_attempts_takes_effect(
    program: Callable[..., str], name: str, code: int
) -> None:
    script = program(ATTEMPT, "if attempt == 0: sys.exit('first')", "print('second')")
    words = [
        sys.executable,
        "-c",
        BETWEEN_ATTEMPTS,
        name,
        *command("-n", "1", "--max-restarts", "1", script)[3:],
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == code, done.stderr
    assert (done.stdout == "[0] second\n") == (code == 0)
    assert "threads: 1" in done.stderr  # no other thread exists at a fork


MEET = """
import os, sys
import numpy as np, pycollective as pc
attempt = int(os.environ["PYCOLLECTIVE_RESTART_COUNT"])
pc.init(timeout=30)
assert pc.allreduce(np.array([attempt]))[0] == attempt * pc.size()
if attempt == 0 and pc.rank() == 1:
    raise RuntimeError("first time")
pc.barrier()
sys.stdout.write(f"met {attempt}\\n")
pc.shutdown()
"""


def test_a_new_attempt_connects_to_no_rank_of_the_old_one(tmp_path: Path) -> None:
    script = tmp_path / "meet.py"
    script.write_text(MEET)
    done = run("-n", "3", "--max-restarts", "1", str(script))
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[{r}] met 1" for r in range(3)]
    assert "rank 1 failed first (exit code 1)" in done.stderr
