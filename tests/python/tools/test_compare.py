"""`pycollective bench --compare`: the same cells for all, and every omitted peer is reported."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pycollective import cli
from pycollective.tools.compare import cells, command, compared_libraries, figures, launching, table
from pycollective.tools.compare.adapter import Adapter
from pycollective.tools.compare.arguments import add_arguments
from pycollective.tools.compare.collectives import COLLECTIVES
from pycollective.tools.compare.compared_libraries import OURS, ComparedLibrary, Missing, find
from pycollective.tools.compare.figures import Figures, merge, percentile, ratio, row
from pycollective.tools.compare.launching import Launch, Task, launch

pytestmark = pytest.mark.timeout(120)

DEADLINE_S = 100.0
NO_PYTHON = "/no/such/python"


def bench(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (sys.executable, "-m", "pycollective", "bench", *words),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )


# ---- the whole command


@pytest.fixture(scope="module")
def beside_gloo(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, dict[str, Any]]:
    """Returns its standard output, its standard error, and its JSON."""
    pytest.importorskip("torch")
    file = tmp_path_factory.mktemp("compare") / "figures.json"
    shape = (
        "-n",
        "2",
        "--ops",
        ",".join(COLLECTIVES),
        "--sizes",
        "8,4K",
        "--iters",
        "20",
        "--rounds",
        "2",
    )
    options = ("--compare", "gloo", "--peer", f"openmpi={NO_PYTHON}", "--json", str(file))
    done = bench(*shape, *options)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr, json.loads(file.read_text())


def test_every_cell_is_measured_for_all_peers_that_have_it(
    beside_gloo: tuple[str, str, dict[str, Any]],
) -> None:
    rows = beside_gloo[2]["rows"]
    assert {(each["collective"], each["nbytes"], each["peer"]) for each in rows} == {
        (collective, nbytes, name)
        for collective in COLLECTIVES
        for nbytes in ((8, 4096) if COLLECTIVES[collective].moves_data else (0,))
        for name in ("pycollective", "gloo")
        if name != "gloo" or collective not in ("scan", "exscan")  # it has none
    }
    for each in rows:
        assert each["right"]
        assert (each["rounds"], each["iterations"]) == (2, 40)
        assert 0 < each["lowest_s"] <= each["median_s"] <= each["highest_s"]
        assert each["median_s"] <= each["p99_s"]


def test_a_ratio_is_ours_over_the_best_peers(beside_gloo: tuple[str, str, dict[str, Any]]) -> None:
    found = beside_gloo[2]
    median = {(each["collective"], each["nbytes"], each["peer"]): each["median_s"] for each in found["rows"]}
    ratios = {(each["collective"], each["nbytes"]): each["ratio"] for each in found["ratios"]}
    assert ratios["scan", 8] is None  # no peer to compare with
    assert ratios["allreduce", 8] == pytest.approx(
        median["allreduce", 8, "pycollective"] / median["allreduce", 8, "gloo"]
    )


def test_a_requested_peer_that_is_not_there_is_named_everywhere(
    beside_gloo: tuple[str, str, dict[str, Any]],
) -> None:
    printed, reported, found = beside_gloo
    assert f"# missing: openmpi: there is no interpreter {NO_PYTHON}" in printed
    assert f"openmpi is missing: there is no interpreter {NO_PYTHON}" in reported
    assert found["missing"] == {"openmpi": f"there is no interpreter {NO_PYTHON}"}


def test_the_table_has_a_line_for_each_size_and_a_column_for_each_library(
    beside_gloo: tuple[str, str, dict[str, Any]],
) -> None:
    printed = beside_gloo[0].splitlines()
    begin = printed.index("# allreduce")
    assert printed[begin + 1].split() == ["size", "pycollective", "gloo", "/", "best", "peer"]
    assert [line.split()[:2] for line in printed[begin + 2 : begin + 4]] == [["8", "B"], ["4", "KiB"]]
    assert [len(line.split()) for line in printed[begin + 2 : begin + 4]] == [
        7,
        7,
    ]  # two of each, and the ratio
    scan = printed[printed.index("# scan") + 2].split()
    assert scan[-2:] == ["-", "-"]


def test_the_roofline_is_of_the_same_run(beside_gloo: tuple[str, str, dict[str, Any]]) -> None:
    found = beside_gloo[2]["ceilings"]
    assert {(each["name"], each["nbytes"]) for each in found} == {
        ("futex", 0),
        *((name, nbytes) for name in ("memcpy", "add", "tcp") for nbytes in (8, 4096)),
    }
    assert all(0 < each["median_s"] <= each["p99_s"] for each in found)


def other_interpreter(folder: Path, *, path: str) -> str:
    """Makes this interpreter available under another name, importing from that path."""
    program = folder / "python"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={path} exec {sys.executable} "$@"\n')
    program.chmod(0o755)
    return str(program)


@pytest.mark.daily(0)
def test_every_collective_is_right_on_three_ranks_with_a_gloo_of_another_interpreter(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    every = ("--ops", ",".join(COLLECTIVES), "--sizes", "4,1000", "--iters", "3", "--rounds", "1")
    gloo = "gloo=" + other_interpreter(tmp_path, path=str(Path(torch.__file__).parents[1]))
    done = bench("-n", "3", *every, "--peer", gloo, "--json", "-")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert all(each["right"] for each in rows)
    assert {each["collective"] for each in rows if each["peer"] == "pycollective"} == set(COLLECTIVES)
    assert {each["collective"] for each in rows if each["peer"] == "gloo"} == set(COLLECTIVES) - {
        "scan",
        "exscan",
    }


# ---- options


def refused(words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit):
        cli.main(["bench", *words])
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--compare", "gloo,nccl"], "no such peer: 'nccl'; there are gloo openmpi"),
        (["--peer", "openmpi"], "'openmpi' is not NAME=PYTHON"),
        (["--peer", "nccl=/bin/python"], "no such peer: 'nccl'"),
        (["--plot", "curves"], "'curves' is none of .png, .svg"),
        (["--rounds", "0", "--compare", "gloo"], "must be at least 1"),
        (["--dtype", "int32", "--compare", "gloo"], "the comparison is of float32, not int32"),
        (["--ops", "scan,allreduce"], "scan: measured by pycollective-bench, or here with --compare"),
        (["--ops", "sum", "--compare", "gloo"], "no such operation: sum"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert why in refused(words, capsys)


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "nowhere" / "figures.json"
    assert cli.main(["bench", "--json", str(file)]) == 2
    assert f"cannot write {file}: {file.parent} is no folder" in capsys.readouterr().err


def options(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return argparse.Namespace(
        **vars(parser.parse_args(words)), ranks=2, ops=["allreduce"], sizes=[8], iters=0, dtype="float32"
    )


def test_libraries_alternate_and_none_is_always_the_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    order = []

    def note(library: ComparedLibrary, ranks: int, tasks: Sequence[Task], limit_s: float) -> Launch:
        order.append(library.name)
        return Launch("1", [Figures(2e-6 if library is OURS else 1e-6, 3e-6, 10, True)] * len(tasks))

    monkeypatch.setattr(command, "launch", note)
    monkeypatch.setattr(command, "find", lambda name: ComparedLibrary(name, "gloo", "python"))
    assert command.run(options("--compare", "gloo,mpich", "--rounds", "3")) == 0
    assert order == [
        *("pycollective", "gloo", "mpich"),
        *("gloo", "mpich", "pycollective"),
        *("mpich", "pycollective", "gloo"),
    ]
    assert (
        capsys.readouterr().out.splitlines()[-5].split()[-1] == "2.00"
    )  # of allreduce; the roofline follows


def test_a_wrong_result_and_a_failure_of_ours_end_with_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "find", lambda name: ComparedLibrary(name, "gloo", "python"))
    ends: dict[str, Launch] = {}
    monkeypatch.setattr(command, "launch", lambda library, *rest: ends[library.name])
    fine, wrong = Launch("1", [Figures(1e-6, 1e-6, 10, True)]), Launch("1", [Figures(1e-6, 1e-6, 10, False)])
    for ours, gloo, code in (
        (fine, fine, 0),
        (wrong, fine, 1),
        (fine, wrong, 1),
        (Launch(failure="it fell over"), fine, 1),
        (fine, Launch(failure="it fell over"), 0),  # only that peer's failure, but it is reported
    ):
        ends.update({OURS.name: ours, "gloo": gloo})
        assert command.run(options("--compare", "gloo")) == code


def test_a_peer_that_has_failed_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "find", lambda name: ComparedLibrary(name, "gloo", "/bin/false"))
    fine = Launch("1", [Figures(1e-6, 1e-6, 10, True)])
    monkeypatch.setattr(
        command, "launch", lambda library, *rest: fine if library is OURS else launch(library, *rest)
    )
    assert command.run(options("--compare", "gloo", "--rounds", "1")) == 0
    said = capsys.readouterr()
    assert "# failed: gloo: exit code 1" in said.out
    assert "gloo has failed: exit code 1" in said.err


# ---- the available peers


def interpreter(folder: Path, says: str) -> str:
    """A program that gives that answer to every question."""
    folder.mkdir(parents=True)
    program = folder / "python"
    program.write_text(f"#!/bin/sh\necho '{says}'\n")
    program.chmod(0o755)
    return str(program)


def test_another_mpi_than_the_one_that_was_asked_for_is_not_taken_for_it(tmp_path: Path) -> None:
    python = interpreter(tmp_path / "bin", "Open MPI v5.0.11")
    found = find("mpich", python)
    assert isinstance(found, Missing)
    assert found.why == f"the MPI of {python} is Open MPI v5.0.11; --peer mpich=PYTHON gives another"


def test_an_mpi_without_mpiexec_is_missing_and_with_it_is_started_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = interpreter(tmp_path / "bin", "Open MPI v5.0.11")
    monkeypatch.setattr(compared_libraries.shutil, "which", lambda name: name if name == python else None)
    assert find("openmpi", python) == Missing("openmpi", f"there is no mpiexec beside {python} or in PATH")
    (tmp_path / "bin" / "mpiexec").touch()
    found = find("openmpi", python)
    assert isinstance(found, ComparedLibrary)
    assert found.launcher[0] == str(tmp_path / "bin" / "mpiexec")
    assert launching.command(found, 4, Path("spec.json"))[-5:-2] == ["-n", "4", python]


def test_what_is_not_installed_is_said_with_the_words_of_the_interpreter(tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("raise ImportError('nothing is installed here')")
    found = find("gloo", other_interpreter(tmp_path, path=str(tmp_path)))
    assert isinstance(found, Missing)
    assert "nothing is installed here" in found.why
    assert "--peer gloo=PYTHON" in found.why


def test_a_launch_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = tmp_path / "pid"
    forever = f"echo $$ > {pid}; exec tail -f /dev/null"
    monkeypatch.setattr(launching, "command", lambda *_: ["sh", "-c", forever])
    done = launch(OURS, 1, [], 1.0)
    assert done.failure.startswith("not done after 1 s")
    assert not Path("/proc", pid.read_text().strip()).exists()


# ---- figures


def times(*ends_us: int, right: bool = True, trips: int = 1) -> dict[str, Any]:
    return {"right": right, "trips": trips, "ends": [1000 * each for each in ends_us]}


def test_a_call_takes_from_one_completion_of_the_slowest_rank_to_the_next() -> None:
    (found,) = merge([[times(0, 10, 11, 40)], [times(5, 6, 30, 31)]])  # done at 5, 10, 30, 40
    assert found == Figures(pytest.approx(10e-6), pytest.approx(20e-6), 3, True)


def test_trips_share_the_time_and_one_wrong_rank_is_enough() -> None:
    (found,) = merge([[times(0, 10, trips=2)], [times(0, 20, trips=2, right=False)]])
    assert found is not None
    assert (found.median_s, found.right) == (pytest.approx(10e-6), False)


def test_what_a_library_has_not_got_has_no_figures() -> None:
    assert merge([[None, times(0, 1)], [None, times(0, 1)]])[0] is None


def test_of_few_values_the_99th_percentile_is_the_largest() -> None:
    assert percentile([1.0], 0.99) == 1
    assert percentile([float(i) for i in range(1, 100)], 0.99) == 99
    assert percentile([float(i) for i in range(1, 1001)], 0.99) == 990
    assert percentile([1.0, 2.0, 3.0, 4.0], 0.5) == 2


def test_a_row_is_the_median_round_with_the_spread_of_all() -> None:
    rounds = [Figures(each, 2 * each, 10, True) for each in (3.0, 1.0, 2.0)]
    assert row("allreduce", 8, "gloo", rounds) == figures.Row(
        "allreduce", 8, "gloo", 2.0, 1.0, 3.0, 4.0, 3, 30, True
    )


def test_a_ratio_needs_both_sides() -> None:
    def of(peer: str, seconds: float) -> figures.Row:
        return row("allreduce", 8, peer, [Figures(seconds, seconds, 1, True)])

    assert ratio([of("pycollective", 3.0), of("gloo", 4.0), of("mpich", 2.0)], "pycollective") == 1.5
    assert ratio([of("gloo", 4.0)], "pycollective") is None
    assert ratio([of("pycollective", 4.0)], "pycollective") is None


def test_a_wrong_cell_is_marked_in_the_table() -> None:
    wrong = row("allreduce", 8, "gloo", [Figures(1e-6, 2e-6, 1, False)])
    assert table.cell(wrong).split() == ["1.0", "2.0", "WRONG"]


# ---- the check


class Idle(Adapter):
    """Does nothing, whether the call is right or not."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    def __getattribute__(self, name: str) -> Any:
        if name in {*COLLECTIVES, "send", "recv"}:
            return lambda *_: None
        return super().__getattribute__(name)


@pytest.mark.parametrize("name", [name for name in COLLECTIVES if name != "barrier"])
def test_a_call_that_does_nothing_is_wrong(name: str) -> None:
    cell = cells.make(Idle(1, 3), name, 1000)
    cell.fill()
    cell.step(0)
    root = 0 if name in ("broadcast", "scatter") else 1
    assert not cell.right(root)


def test_every_collective_has_a_cell_and_a_factor() -> None:
    assert set(cells.CELLS) == set(COLLECTIVES)
    assert COLLECTIVES["allreduce"].bus_factor(4) == 1.5
    assert COLLECTIVES["alltoall"].bus_factor(4) == 0.75
    assert COLLECTIVES["broadcast"].bus_factor(4) == 1
    assert not COLLECTIVES["barrier"].moves_data


def test_arrays_lie_on_pages_of_their_own() -> None:
    assert cells.buffer(3).ctypes.data % 4096 == 0
    assert len(cells.buffer(3)) == 3
    assert [len(each) for each in cells.make(Idle(0, 3), "allgather", 1000).arrays] == [83, 249]
    assert [len(each) for each in cells.make(Idle(0, 3), "scatter", 1).arrays] == [3, 1]
