"""`pycollective-bench --device cuda` as a whole program, on FAKES of the driver and of NCCL.

Ranks that are threads use NCCL, and ranks that are processes the host, because the fake NCCL knows
the ranks of one process.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable

import pytest
from fake_gpus import FAKES, build, build_nccl

pytestmark = pytest.mark.timeout(120)

DEADLINE_S = 60.0
BENCH = (sys.executable, "-m", "pycollective.tools.bench_binary")
RUN = (sys.executable, "-m", "pycollective", "run", "--no-prefix", "-n", "2")
SMALL = ("--sizes", "8,4K", "--iters", "5", "-w", "1")

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def on_fakes(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("fakes")
    driver = build(FAKES / "cuda" / "fake_machine.cc", folder / "libcuda.so.1")
    nccl = build_nccl(folder)

    def run(*words: str, launcher: tuple[str, ...] = (), **more: str) -> subprocess.CompletedProcess[str]:
        env = {"PYCOLLECTIVE_CUDA_LIB": str(driver), "PYCOLLECTIVE_NCCL_LIB": str(nccl)}
        return subprocess.run(
            [*launcher, *BENCH, *words, "--device", "cuda"],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            env={**os.environ, **env, "FAKE_CUDA_DEVICES": "4", **more},
        )

    return run


def table(done: subprocess.CompletedProcess[str]) -> list[list[str]]:
    assert done.returncode == 0, done.stderr
    return [line.split() for line in done.stdout.splitlines() if line and not line.startswith("#")]


def ways(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stdout.splitlines() if line.startswith("# way: ")]


def test_the_columns_are_those_of_nccl_tests(on_fakes: Run) -> None:
    done = on_fakes("allreduce", "-n", "1", *SMALL)
    rows = table(done)
    assert [row[:5] for row in rows] == [
        ["8", "2", "float32", "sum", "-1"],
        ["4096", "1024", "float32", "sum", "-1"],
    ]
    for row in rows:
        assert len(row) == 13
        assert all(float(each) >= 0 for each in row[5:])
        assert (row[8], row[12]) == ("0", "0")
    titles = next(line for line in done.stdout.splitlines() if "redop" in line).split()
    half = ["time", "algbw", "busbw", "#wrong"]
    assert titles == ["#", "size", "count", "type", "redop", "root", *half, *half]
    assert ways(done) == ["# way: nccl"]
    assert re.search(
        r"^#  Rank  0 Group  0 Pid +\d+ on +\S+ device  0 \[\S+\] Fake GPU 0$", done.stdout, re.M
    )
    assert "# Out of bounds values : 0 OK" in done.stdout
    assert "# NCCL 2.28.9 from " in done.stdout


def test_ranks_as_threads_go_by_nccl_and_are_compared_with_its_own_calls(on_fakes: Run) -> None:
    every = "allreduce,broadcast,reduce,allgather,reduce_scatter"
    done = on_fakes(every, "-t", "3", *SMALL, "--raw", "--copy")
    assert [(row[8], row[12]) for row in table(done)] == [("0", "0")] * 10
    assert ways(done) == ["# way: nccl"] * 5
    number = r"-?\d+\.\d\d us, ours [+-]\d+\.\d\d"
    both = f"median {number}, p99 {number}"
    times = f"{number}, {both}, until queued {number}, {both}, #wrong 0"
    beside = rf"^# NCCL's own call: out of place {times}; in place {times}$"
    assert len(re.findall(beside, done.stdout, re.M)) == 10
    copies = re.findall(r"^# the driver's copy: \d+\.\d\d us, \d+\.\d\d GB/s$", done.stdout, re.M)
    assert len(copies) == 10
    assert "# of NCCL's own calls  : 0 OK" in done.stdout


@pytest.mark.parametrize("threads", ["2", "3"])
def test_messages_go_there_and_back_beside_nccls_own(on_fakes: Run, threads: str) -> None:
    few = ("--iters", "5", "-w", "1")
    done = on_fakes("sendrecv", "-t", threads, "--sizes", "8,256K", *few, "--raw")
    assert [(row[1], row[8], row[12]) for row in table(done)] == [("2", "0", "0"), ("65536", "0", "0")]
    assert ways(done) == ["# way: nccl"]
    assert "# of NCCL's own calls  : 0 OK" in done.stdout
    staged = on_fakes("sendrecv", "-n", "2", "--sizes", "256K", *few, "--way", "staged")
    assert (ways(staged), len(table(staged))) == (["# way: staged: --way staged"], 1)


def test_a_wrong_result_of_nccls_own_calls_is_said_and_the_exit_code_is_1(on_fakes: Run) -> None:
    words = ("allreduce", "-t", "2", *SMALL, "--raw")
    done = on_fakes(*words, FAKE_NCCL_SPOILS="world 2")  # the world of its own calls
    assert done.returncode == 1
    assert re.search(
        r"^pycollective-bench: \d elements of the results of NCCL's own calls are wrong$", done.stderr, re.M
    )
    assert re.search(r"^# of NCCL's own calls  : \d FAILED$", done.stdout, re.M)
    assert "# Out of bounds values : 0 OK" in done.stdout
    done = on_fakes(*words, "--json", FAKE_NCCL_SPOILS="world 2")
    halves = [
        json.loads(line)[place] for line in done.stdout.splitlines() for place in ("out_of_place", "in_place")
    ]
    assert all(half["nwrong"] == 0 and half["raw_nwrong"] > 0 for half in halves)


def test_a_rank_that_cannot_begin_reports_the_reason_to_the_others(on_fakes: Run) -> None:
    done = on_fakes("allreduce", "-n", "2", "--gpus", "0,9", *SMALL)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last == "pycollective-bench: rank 1 failed first: there is no GPU 9 here: there are 4"


@pytest.mark.parametrize(
    "words",
    [("-m", "3"), ("-G", "2"), ("-z", "1"), ("-C", "1"), ("-a", "0"), ("-a", "3", "-N", "2"), ("-c", "0")],
)
def test_the_flags_of_nccl_tests_work(on_fakes: Run, words: tuple[str, ...]) -> None:
    done = on_fakes("allreduce", "-t", "2", *SMALL, *words)
    rows = table(done)
    assert len(rows) == (4 if "-N" in words else 2)
    assert {row[12] for row in rows} == ({"N/A"} if "-c" in words else {"0"})
    assert ("cputime" in done.stdout) == ("-C" in words)


@pytest.mark.parametrize("launcher", [(), RUN])
def test_ranks_as_processes_go_through_the_host_if_asked(on_fakes: Run, launcher: tuple[str, ...]) -> None:
    ranks = () if launcher else ("-n", "2")
    every = "allreduce,broadcast,reduce,allgather,reduce_scatter,alltoall,gather,scatter,scan,exscan"
    done = on_fakes(*ranks, "--ops", every, *SMALL, "--way", "staged", launcher=launcher)
    rows = table(done)
    assert len(rows) == 20
    assert {row[8] for row in rows} == {"0"}
    assert ways(done) == ["# way: staged: --way staged"] * 10


def test_ranks_that_share_a_gpu_say_why_they_do_not_go_by_nccl(on_fakes: Run) -> None:
    done = on_fakes("allreduce", "-n", "2", "--gpus", "1", *SMALL)
    assert len(table(done)) == 2
    (way,) = ways(done)
    assert re.fullmatch(
        r"# way: staged: these ranks cannot go by NCCL: rank 0 and rank 1 share one GPU, .*", way
    )
    assert done.stdout.count(" device  1 [") == 2


def test_json_has_one_object_per_row_and_nothing_else(on_fakes: Run) -> None:
    done = on_fakes("allreduce", "-n", "1", *SMALL, "--raw", "--copy", "--json")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(each["size"], each["count"], each["actual_iterations"]) for each in found] == [
        (8, 2, 5),
        (4096, 1024, 5),
    ]
    for each in found:
        assert (each["way"], each["why_not_nccl"], each["nccl_version"]) == ("nccl", None, "2.28.9")
        assert each["copy_time"] > 0
        for half in (each["out_of_place"], each["in_place"]):
            assert half["nwrong"] == 0
            assert 0 < half["host_time"] <= half["time"]
            assert 0 < half["raw_host_time"] <= half["raw_time"]
            assert half["raw_nwrong"] == 0
            for turns, median in (("turns", "p50"), ("raw_turns", "raw_p50")):
                assert len(half[turns]) == 4
                assert half[median] == sorted(half[turns])[1]
                assert half[median.replace("p50", "p99")] == max(half[turns])
            for prefix in ("", "raw_"):
                assert 0 < half[f"{prefix}host_p50"] <= half[f"{prefix}host_p99"]


def test_without_a_driver_it_is_skipped_with_one_line_of_reason(on_fakes: Run) -> None:
    for launched in ((), ("-t", "2")):
        done = on_fakes("allreduce", *launched, *SMALL, PYCOLLECTIVE_CUDA_LIB="/nowhere/libcuda.so.1")
        assert (done.returncode, done.stdout) == (77, "")
        (line,) = done.stderr.splitlines()
        assert line.startswith("pycollective-bench: ")
        assert "/nowhere/libcuda.so.1" in line


def test_what_must_go_by_nccl_and_cannot_is_skipped_too(on_fakes: Run) -> None:
    done = on_fakes("allreduce", "-n", "2", "--gpus", "0", *SMALL, "--way", "nccl")
    assert (done.returncode, done.stdout) == (77, "")
    (line,) = done.stderr.splitlines()
    assert "share one GPU" in line


def test_a_gpu_that_is_not_there_is_an_error(on_fakes: Run) -> None:
    done = on_fakes("allreduce", "-n", "1", "--gpus", "4", *SMALL)
    assert done.returncode == 1
    assert "there is no GPU 4 here: there are 4" in done.stderr


@pytest.mark.parametrize("launcher", [(), RUN])
def test_what_makes_no_sense_is_explained_with_exit_code_2(on_fakes: Run, launcher: tuple[str, ...]) -> None:
    done = on_fakes("allreduce", "-m", "2", "--ceilings", launcher=launcher)
    assert done.returncode == 2
    assert "--ceilings does not go with --device cuda" in done.stderr
