"""`pycollective-bench`: the same table alone and under every launcher, and right results.

It reports every failure.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from pycollective.launching.environment import free_port
from pycollective.tools.bench_binary import BINARY, patience

pytestmark = pytest.mark.timeout(90)

DEADLINE_S = 40.0
BENCH = (sys.executable, "-m", "pycollective.tools.bench_binary")
RUN = (sys.executable, "-m", "pycollective", "run", "--no-prefix", "-n", "2")
SCAN = ("-b", "8", "-e", "512", "-f", "8", "-w", "2", "--iters", "5", "--ops", "allreduce,broadcast,barrier")
FOREVER = ("--sizes", "8", "--iters", "10000000", "--timeout_s", "30")


def run(*words: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, capture_output=True, text=True, timeout=DEADLINE_S, env={**os.environ, **(env or {})}
    )


@contextlib.contextmanager
def started(*words: str, env: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    with subprocess.Popen(
        words, stdout=pipe, stderr=pipe, text=True, env={**os.environ, **(env or {})}, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def rows(text: str) -> list[list[str]]:
    """Returns what does not differ from run to run: size, count, type, redop, root and #wrong."""
    table = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return [[*words[:5], words[8]] for words in table]


def wait_for_the_table(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if "(us)" in line:
            return
    raise AssertionError(f"no table; {process.communicate()[1]}")


def benchmarks_below(process: subprocess.Popen[str]) -> list[psutil.Process]:
    found = psutil.Process(process.pid).children(recursive=True)
    return [each for each in found if each.exe() == str(BINARY.resolve())]


@pytest.fixture(scope="module")
def alone() -> str:
    done = run(*BENCH, "-n", "2", *SCAN)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_the_rows_are_those_that_were_asked_for_and_right(alone: str) -> None:
    sizes = [["8", "2"], ["64", "16"], ["512", "128"]]
    assert rows(alone) == [
        *([*size, "float32", "sum", "-1", "0"] for size in sizes),
        *([*size, "float32", "none", "rotate", "0"] for size in sizes),
        ["0", "0", "none", "none", "-1", "0"],
    ]


def test_the_comments_say_what_was_measured_and_how_it_went(alone: str) -> None:
    lines = alone.splitlines()
    assert lines[0].startswith("# pycollective-bench: 2 ranks on ")
    assert "in place only" in alone
    assert "on one clock" in alone
    assert lines[-2] == "# Out of bounds values : 0 OK"
    assert lines[-1].startswith("# Avg bus bandwidth    : ")


def test_json_has_one_object_per_row_and_nothing_else(alone: str) -> None:
    done = run(*BENCH, "-n", "2", *SCAN, "--json")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [
        [str(each[name]) for name in ("size", "count", "type", "redop", "root", "wrong")] for each in found
    ] == rows(alone)
    assert {each["collective"] for each in found} == {"allreduce", "broadcast", "barrier"}
    assert {(each["ranks"], each["iters"], each["one_clock"]) for each in found} == {(2, 5, True)}
    assert all(0 < each["p50_us"] <= each["p99_us"] for each in found)


@pytest.mark.parametrize("transport", ["tcp", "auto"])
def test_every_operation_is_right_in_place_and_out_of_place(transport: str) -> None:
    every = ("--ops", "all", "--both", "--sizes", "8,10000", "--iters", "3", "--json")
    done = run(*BENCH, "-n", "3", *every, "--transport", transport)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(each["wrong"] == 0 for each in found)
    names = {each["collective"] for each in found}
    assert {each["collective"] for each in found if each["in_place"]} == names - {"alltoall"}
    assert {each["collective"] for each in found if not each["in_place"]} == names - {"barrier"}
    assert names >= {"allgather", "reduce_scatter", "alltoall", "gather", "scatter", "scan", "exscan"}


@pytest.mark.parametrize(
    ("group", "ranks", "head"),
    [
        ("2,0", 2, "# these are ranks 2 0 of the world; other ranks wait"),
        ("even-odd", 3, "# these are ranks 0 2 4 of the world; the odd ones measure at the same time"),
    ],
)
def test_a_group_measures_beside_the_others(group: str, ranks: int, head: str) -> None:
    shape = ("-n", "5", "--group", group, "--ops", "allreduce,gather", "--sizes", "8", "--iters", "3")
    done = run(*BENCH, *shape)
    assert done.returncode == 0, done.stderr
    assert head in done.stdout.splitlines()
    assert done.stdout.splitlines()[0].startswith(f"# pycollective-bench: {ranks} ranks on ")
    assert [row[-1] for row in rows(done.stdout)] == ["0", "0"]  # nothing wrong, and each row once


def test_a_group_of_ranks_that_are_not_there_is_refused() -> None:
    done = run(*BENCH, "-n", "2", "--group", "1,2")
    assert done.returncode == 2
    assert "--group 1,2: '2' is not a number from 0 to 1, the ranks there are" in done.stderr


def test_the_roofline_is_measured_without_any_rank() -> None:
    done = run(*BENCH, "--ceilings", "--sizes", "8,64K", "--iters", "3")
    assert done.returncode == 0, done.stderr
    table = [line.split()[:2] for line in done.stdout.splitlines() if not line.startswith("#")]
    by_size = [[name, size] for size in ("8", "65536") for name in ("memcpy", "add", "tcp")]
    assert table == [["futex", "-"], *by_size]


def test_under_a_launcher_the_roofline_is_measured_once() -> None:
    done = run(*RUN, *BENCH, "--ceilings", "--sizes", "8", "--iters", "3", "--json")
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["ceiling"] for line in done.stdout.splitlines()] == [
        "futex",
        "memcpy",
        "add",
        "tcp",
    ]


def test_pycollective_run_gives_the_same_rows(alone: str) -> None:
    done = run(*RUN, *BENCH, *SCAN)
    assert done.returncode == 0, done.stderr
    assert rows(done.stdout) == rows(alone)


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="there is no mpirun")
def test_mpirun_gives_the_same_rows(alone: str) -> None:
    version = run("mpirun", "--version").stdout
    extra = ["--allow-run-as-root", "--oversubscribe"] if "Open MPI" in version else []
    done = run("mpirun", *extra, "-np", "2", *BENCH, *SCAN)
    assert done.returncode == 0, done.stderr
    assert rows(done.stdout) == rows(alone)


@contextlib.contextmanager
def two_by_variables(tmp_path: Path, *words: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Starts two ranks. Rank 0 has to open the store at an address that both know."""
    common = {
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "XDG_CONFIG_HOME": str(tmp_path),
    }
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(started(*BENCH, *words, env={**common, "RANK": rank, "LOCAL_RANK": rank}))
            for rank in ("0", "1")
        ]


def test_ranks_that_only_have_variables_give_the_same_rows(alone: str, tmp_path: Path) -> None:
    with two_by_variables(tmp_path, *SCAN) as processes:
        outputs = [each.communicate(timeout=DEADLINE_S) for each in processes]
        assert [each.returncode for each in processes] == [0, 0], outputs
    assert rows(outputs[0][0]) == rows(alone)
    assert outputs[1] == ("", "")


def test_encrypted_ranks_find_each_other(alone: str) -> None:
    done = run(*RUN, *BENCH, *SCAN, env={"PYCOLLECTIVE_SECURITY": "encrypt"})
    assert done.returncode == 0, done.stderr
    assert rows(done.stdout) == rows(alone)


def test_a_launcher_of_one_rank_makes_a_world_of_one() -> None:
    env = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
    done = run(*BENCH, "--sizes", "8", env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("# pycollective-bench: 1 rank on ")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--no-such",), "there is no option --no-such"),
        (("-b", "x"), "'x' is not a size"),
        (("-r", "9", "--ops=reduce"), "only 2 ranks"),
    ],
)
@pytest.mark.parametrize("launcher", [(), RUN])
def test_a_bad_command_line_is_explained_once_with_exit_code_2(
    launcher: tuple[str, ...], words: tuple[str, ...], why: str
) -> None:
    done = run(*launcher, *BENCH, *words)
    assert done.returncode == 2
    assert done.stdout == ""
    # The other rank does not print it, but the launcher may repeat the last lines.
    assert done.stderr.count("usage: pycollective-bench") in ((1, 2) if launcher else (1,))
    assert why in done.stderr


def test_help_is_no_error() -> None:
    done = run(*BENCH, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "--minbytes" in done.stdout


def test_the_number_of_ranks_is_the_launchers_to_say() -> None:
    done = run(*RUN, *BENCH, "-n", "3")
    assert done.returncode == 2
    assert "-n 3: the launcher has started 2 ranks" in done.stderr


def test_the_program_itself_does_not_take_a_launchers_rank_for_a_world() -> None:
    done = run(*RUN, str(BINARY))
    assert done.returncode == 1
    assert "start the command `pycollective-bench`" in done.stderr


def test_a_rank_killed_amid_the_calls_is_reported_last() -> None:
    with started(*BENCH, "-n", "2", *FOREVER) as process:
        wait_for_the_table(process)
        victim = benchmarks_below(process)[-1]
        victim.kill()
        _, stderr = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 1
    last = stderr.splitlines()[-1]
    assert re.fullmatch(
        rf"pycollective-bench: rank [01] failed first: process {victim.pid} was killed by .*", last
    )


def test_a_rank_killed_under_a_launcher_is_named_and_ends_the_others() -> None:
    with started(*RUN, *BENCH, *FOREVER) as process:
        wait_for_the_table(process)
        ranks = benchmarks_below(process)
        victim = next(each for each in ranks if each.environ()["PYCOLLECTIVE_RANK"] == "1")
        victim.kill()
        _, stderr = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 128 + signal.SIGKILL
    assert "rank 1 failed first" in stderr
    assert f"rank 1 (process {victim.pid}) was killed by SIGKILL" in stderr.splitlines()[-1]


def test_signals_are_passed_on_and_decide_the_exit_code(tmp_path: Path) -> None:
    with two_by_variables(tmp_path, *FOREVER) as processes:
        wait_for_the_table(processes[0])
        processes[1].send_signal(signal.SIGTERM)
        _, stderr = processes[0].communicate(timeout=DEADLINE_S)
        # no output, because the sender of the signal expects the end
        assert processes[1].communicate(timeout=DEADLINE_S) == ("", "")
    assert processes[1].returncode == 128 + signal.SIGTERM
    assert processes[0].returncode == 1
    assert stderr.startswith("pycollective.PeerFailure: ")


def test_a_launcher_killed_takes_its_benchmark_along(tmp_path: Path) -> None:
    with two_by_variables(tmp_path, *FOREVER) as processes:
        wait_for_the_table(processes[0])
        (child,) = benchmarks_below(processes[1])
        processes[1].kill()
        child.wait(timeout=DEADLINE_S)
        processes[0].communicate(timeout=DEADLINE_S)
    assert processes[0].returncode == 1


def test_a_table_that_cannot_be_written_is_an_error() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*BENCH, *SCAN], stdout=full, stderr=subprocess.PIPE, text=True, timeout=DEADLINE_S
        )
    assert done.returncode == 1
    assert "rank 0 failed first: " in done.stderr.splitlines()[-1]
    assert "writing the table: No space left on device" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["--timeout_s", "3"], 3.0),
        (["--timeout_s=4"], 4.0),
        (["-h", "-x"], 600.0),
        (["--timeout_s", "x"], 600.0),
        (["--timeout_s"], 600.0),
    ],
)
def test_ranks_look_for_each_other_as_long_as_calls_may_take(words: list[str], wanted: float) -> None:
    assert patience(words) == wanted


def test_the_timeout_of_the_environment_counts_for_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYCOLLECTIVE_TIMEOUT_S", "5")
    assert patience([]) == 5.0
