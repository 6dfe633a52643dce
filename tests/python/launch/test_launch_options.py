"""The options of `pycollective run`, what it refuses, and what its ranks receive of it."""

from __future__ import annotations

import re
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from test_launch import program, run

from pycollective import cli
from pycollective.launching import gpus, machines, report
from pycollective.launching.environment import usable_cores
from pycollective.launching.options import DEFAULT_PORT, LAST_PORT, Machines, Options
from pycollective.runtime import devices

pytestmark = pytest.mark.timeout(90)
__all__ = ["program"]  # a fixture
Asked = Callable[..., Options]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Returns a function that parses these words as the launcher does."""
    given: list[Options] = []
    monkeypatch.setattr("pycollective.launching.run.run", lambda options: given.append(options) or 0)

    def ask(*words: str) -> Options:
        assert cli.main(["run", *words]) == 0
        return given[-1]

    return ask


SECOND = "--nnodes 2 --node-rank 1"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("-n 2", "which program?"),
        ("-n 2 -", "a program on standard input has no name"),
        ("-n 0 x.py", "must be at least 1"),
        ("--gpus 0,0 x.py", "'0,0' names a GPU twice"),
        ("--gpus 00,0 x.py", "names a GPU twice"),
        ("--gpus= x.py", "'' in '' is no GPU"),
        ("--gpus 0,,1 x.py", "'' in '0,,1' is no GPU"),
        ("--gpus 0,cuda:1 x.py", "'cuda:1' in '0,cuda:1' is no GPU"),
        ("--gpus=-1 x.py", "'-1' in '-1' is no GPU"),
        ("--gpus 0,GPU-8f6f x.py", "has numbers and names"),
        ("--local-rank-arg sh x", "where would sh take it?"),
        ("--local-rank-arg --local-rank-arg-dash x.py", "not allowed with"),
        ("--max-restarts -1 x.py", "must be 0 or more"),
        ("--node-rank 0 x.py", "say how many, --nnodes N"),
        ("--master node1 x.py", "say how many, --nnodes N"),
        ("--nnodes 0 x.py", "must be at least 1"),
        (
            "--nnodes 1:4 x.py",
            "ranges such as 1:4 are not supported: a world has a fixed number of machines, as --nnodes 4",
        ),
        ("--nnodes some x.py", "invalid machine_count value: 'some'"),
        ("-n gpu x.py", "'gpu' is no number: leave -n out, or write auto"),
        (
            "--nnodes 2 --master node1 -n 1 x.py",
            "needs --node-rank R: which of the machines this is, from 0 to 1",
        ),
        (
            "--nnodes 2 --node-rank 2 --master node1 -n 1 x.py",
            "--node-rank 2: with --nnodes 2 machines count from 0",
        ),
        ("--nnodes 2 --node-rank -1 --master node1 -n 1 x.py", "--node-rank -1: with --nnodes 2"),
        ("--nnodes 1 --node-rank 1 x.py", "--node-rank 1: with --nnodes 1 machines count from 0 to 0"),
        (f"{SECOND} -n 1 x.py", "needs --master HOST: the machine with --node-rank 0"),
        (f"{SECOND} --master node1 x.py", "needs -n: as many ranks on every machine"),
        (f"{SECOND} --master node1 -n 1 --max-restarts 1 x.py", "torchrun --nnodes N"),
        (f"{SECOND} --master node1:http -n 1 x.py", "is not HOST or HOST:PORT"),
        (f"{SECOND} --master tcp://node1:1 -n 1 x.py", "is not HOST or HOST:PORT"),
        (f"{SECOND} --master node1: -n 1 x.py", "is not HOST or HOST:PORT"),
        (f"{SECOND} --master node1:{LAST_PORT + 1} -n 1 x.py", f"must be from 1 to {LAST_PORT}"),
        (f"{SECOND} --master 0.0.0.0 -n 1 x.py", "name the address by which other machines reach this one"),
    ],
)
def test_what_makes_no_sense_is_refused(
    asked: Asked, capsys: pytest.CaptureFixture[str], words: str, message: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        asked(*words.split())
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "gpus", "ranks"),
    [
        ("", 0, usable_cores()),
        ("", 7, 7),
        ("-n auto", 0, usable_cores()),
        ("-n auto", 7, 7),
        ("-n auto --gpus 0,1", 7, 2),
        ("-n 3", 7, 3),
        ("--gpus 0,1,5", 7, 3),
        ("--gpus 0 -n 2", 7, 2),
        ("--nnodes 2 --node-rank 0 --master x --gpus 0", 7, 1),
    ],
)
def test_there_are_as_many_ranks_as_gpus_or_cores_unless_specified_otherwise(
    asked: Asked, monkeypatch: pytest.MonkeyPatch, words: str, gpus: int, ranks: int
) -> None:
    monkeypatch.setattr(devices, "visible_gpus", lambda: gpus)
    assert asked(*words.split(), "x.py").ranks == ranks


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("node1", "node1", DEFAULT_PORT),
        ("node1:80", "node1", 80),
        ("10.0.0.1", "10.0.0.1", DEFAULT_PORT),
        ("fd00::1", "fd00::1", DEFAULT_PORT),
        ("[fd00::1]", "fd00::1", DEFAULT_PORT),
        (f"[fd00::1]:{LAST_PORT}", "fd00::1", LAST_PORT),
    ],
)
def test_ranks_of_several_machines_follow_each_other(asked: Asked, text: str, host: str, port: int) -> None:
    options = asked("-n", "3", *SECOND.split(), "--master", text, "x.py")
    assert options.machines == Machines(2, 1, host, port)
    assert (options.here, options.size) == (range(3, 6), 6)


def test_one_machine_is_no_special_case_in_the_line(asked: Asked) -> None:
    options = asked("-n", "3", "--nnodes", "1", "--node-rank", "0", "--master", "node1", "x.py")
    assert options.machines is None
    assert (options.here, options.size) == (range(3), 3)


def test_every_rank_sees_all_gpus_in_the_order_that_was_given(
    program: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    script = program("print(os.environ['CUDA_VISIBLE_DEVICES'])")
    assert sorted(run("--gpus", "1,0", script).stdout.splitlines()) == ["[0] 1,0", "[1] 1,0"]
    assert run("--gpus", "GPU-8f6f-1,MIG-a/1/0", "-n", "1", script).stdout == "[0] GPU-8f6f-1,MIG-a/1/0\n"
    assert run("-n", "1", script).stdout == "[0] 7\n"


@pytest.mark.parametrize(
    ("there", "asked", "message"),
    [
        (0, "0,1", "--gpus 0,1: no such GPU is here, or its driver does not answer (try nvidia-smi)"),
        (0, "GPU-8f6f", "--gpus GPU-8f6f: no such GPU is here"),
        (
            2,
            "0,1,5",
            "--gpus 0,1,5: this machine has no GPU 5: CUDA shows the ranks only those before it, 0,1",
        ),
        (2, "7", "--gpus 7: no such GPU is here"),
    ],
)
def test_gpus_that_are_not_there_are_reported_once_before_any_rank_starts(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], there: int, asked: str, message: str
) -> None:
    monkeypatch.setattr(devices, "_present", lambda: there)
    assert cli.main(["run", "-n", "1", "--gpus", asked, "true"]) == 0
    assert capfd.readouterr().err.count(message) == 1


def test_of_gpus_that_are_there_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(devices, "_present", lambda: 2)
    assert cli.main(["run", "-n", "1", "--gpus", "1,0", "true"]) == 0
    assert cli.main(["run", "-n", "1", "true"]) == 0
    assert "GPU" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("option", "spelled"), [("--local-rank-arg", "--local_rank"), ("--local-rank-arg-dash", "--local-rank")]
)
def test_old_scripts_get_their_local_rank_before_what_else_they_take(
    asked: Asked, option: str, spelled: str
) -> None:
    """torch.distributed.launch did so: an option that takes the rest may swallow later words."""
    script = asked(option, "x.py", "--local-rank-arg", "SOLVER.LR", "0.1")
    assert script.words(1) == [
        sys.executable, "x.py", f"{spelled}=1", "--local-rank-arg", "SOLVER.LR", "0.1",
    ]  # fmt: skip
    assert asked(option, "-m", "x", "y").words(0) == [sys.executable, "-m", "x", f"{spelled}=0", "y"]
    assert asked("x.py", "y").words(1) == [sys.executable, "x.py", "y"]
    assert asked("--", "sh", "-c", "true").words(1) == ["sh", "-c", "true"]


def test_the_local_rank_counts_on_each_machine(program: Callable[..., str]) -> None:
    done = run("-n", "2", "--local-rank-arg", program("print(sys.argv[1:])"), "a")
    assert sorted(done.stdout.splitlines()) == [f"[{r}] ['--local_rank={r}', 'a']" for r in range(2)]


def test_the_banner_says_what_is_started_and_where(program: Callable[..., str], tmp_path: Path) -> None:
    script = program("print('ran')")
    words = ["-n", "2", "--gpus", "1", "--log-dir", str(tmp_path / "logs")]
    done = run("--banner", *words, script, "an arg", env={"OMP_NUM_THREADS": "3"})
    assert done.returncode == 0
    message = gpus.missing(("1",))  # an error if there is none
    missing = f"pycollective run: {message}\n" if message else ""
    banner, *rows = done.stderr.removesuffix(missing).splitlines()
    assert banner == (
        f"pycollective run: 2 ranks: {sys.executable} {script} 'an arg'; threads per rank: 3; GPUs: 1; "
        f"logs: {tmp_path}/logs"
    )
    table = dict(re.split(" {2,}", row.strip(), maxsplit=1) for row in rows)
    assert table["ranks here"] == "0 to 1 of 2"
    assert table["world size"] == "2"
    assert re.fullmatch(r"127\.0\.0\.1:\d+", table["rank 0's store"])
    assert table["MASTER_ADDR"] == "127.0.0.1"
    assert re.match(r"\d+ \(for torch", table["MASTER_PORT"])
    assert ("GPU of each rank" in table) == (not message)
    assert table["program"] == f"{sys.executable} {script} 'an arg'"
    assert (table["GPUs"], table["restarts"], table["OMP_NUM_THREADS"]) == ("1", "0", "3")
    assert run(*words, script).stderr == missing  # standard error is not a terminal


def test_the_banner_of_one_of_several_machines_says_which(asked: Asked) -> None:
    options = asked("-n", "2", *SECOND.split(), "--master", "node1:80", "--", "true")
    said = report.banner(options, {"OMP_NUM_THREADS": "1"})
    assert said == "4 ranks, 2 to 3 on machine 1 of 2, rank 0 at node1:80: true; threads per rank: 1"


@pytest.mark.parametrize(
    ("words", "env", "expected"),
    [
        ("", {}, "rank 4: 0, rank 5: 1, rank 6: 2, rank 7: 0"),
        ("--gpus 2,0", {}, "rank 4: 2, rank 5: 0, rank 6: 2, rank 7: 0"),
        ("", {"CUDA_VISIBLE_DEVICES": "1, 2"}, "rank 4: 1, rank 5: 2, rank 6: 1, rank 7: 2"),
        ("--gpus 1", {"CUDA_VISIBLE_DEVICES": "2"}, "rank 4: 1, rank 5: 1, rank 6: 1, rank 7: 1"),
        ("", {"CUDA_VISIBLE_DEVICES": ""}, None),
    ],
)
def test_the_table_says_where_the_ranks_connect_and_which_gpu_each_has(
    asked: Asked, monkeypatch: pytest.MonkeyPatch, words: str, env: dict[str, str], expected: str | None
) -> None:
    monkeypatch.setattr(devices, "_present", lambda: 3)
    options = asked("-n", "4", *SECOND.split(), *words.split(), "--master", "node1:80", "--", "true")
    assert options.machines is not None
    world = machines.world_of(options.machines, options.here)
    rows = [row.decode().strip() for row in report.settings(options, world, env)]
    table = dict(re.split(" {2,}|$", row, maxsplit=1) for row in rows)
    assert (table["world size"], table["ranks here"]) == ("8", "4 to 7 of 8")
    assert (table["rank 0's store"], table["MASTER_ADDR"]) == ("node1:80", "node1")
    assert table["MASTER_PORT"].split()[0] == "81"
    assert table.get("GPU of each rank") == expected


def test_on_a_terminal_there_is_a_banner_unless_it_is_not_wanted(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not asked("true").banner
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert asked("true").banner
    assert not asked("--no-banner", "true").banner
    monkeypatch.setattr(sys, "stderr", None)
    assert not asked("true").banner


@pytest.mark.parametrize("form", ["folder", "folder/", "app.zip"])
def test_a_folder_and_a_zip_file_are_programs_as_python_has_it(tmp_path: Path, form: str) -> None:
    """Modules beside the program are found, too."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "__main__.py").write_text("import sys, helper; print(helper.NAME, sys.argv[1:])")
    (folder / "helper.py").write_text("NAME = 'helper'")
    with zipfile.ZipFile(tmp_path / "app.zip", "w") as app:
        for file in folder.iterdir():
            app.write(file, file.name)
    done = run("-n", "2", f"{tmp_path}/{form}", "--epochs", "3")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[{r}] helper ['--epochs', '3']" for r in range(2)]


def test_a_folder_without_a_main_is_reported_once(tmp_path: Path) -> None:
    done = run("-n", "2", str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.count("can't find '__main__' module") == 1


@pytest.mark.parametrize("mode", [0o644, 0o755])
def test_a_script_without_its_suffix_raises_how_it_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    monkeypatch.chdir(tmp_path)
    script = Path("train")
    script.write_text("print('trained')\n")
    script.chmod(mode)
    done = run("-n", "1", "train")
    said = done.stderr
    assert done.returncode == 127
    assert "cannot start train: No such file or directory. There is a file train here" in said
    assert "pycollective run -n 4 -- python train`" in said
    assert (", or ./train" in said) == (mode == 0o755)
    done = run("-n", "1", "./train")
    assert done.returncode == 126  # not executable, or without a #! line
    assert "If it is a script for Python: pycollective run -n 4 -- python ./train" in done.stderr
