"""`pycollective run`: what the user sees, which exit code comes out, and that nothing survives."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import select
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

import pytest

from pycollective import cli
from pycollective.launch.environment import World, rank_environment
from pycollective.launch.verdict import Failure, culprit, is_consequence

pytestmark = pytest.mark.timeout(90)

DEADLINE_S = 40.0
SAY_HI = (sys.executable, "-c", "print('hi')")  # a command that is there whatever the PATH
# Ranks are plain Python here: whether they can talk is the business of other tests.
READY = "print('ready', os.getpid(), flush=True)"
WAIT = "import threading; threading.Event().wait()"


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], str]:
    def write(*lines: str) -> str:
        path = tmp_path / "program.py"
        path.write_text(
            "import os, signal, subprocess, sys\nrank = int(os.environ['RANK'])\n" + "\n".join(lines) + "\n"
        )
        return str(path)

    return write


def command(*words: str) -> list[str]:
    return [
        sys.executable,
        "-c",
        "import sys; from pycollective.cli import main; sys.exit(main())",
        "run",
        *words,
    ]


def run(*words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*words), capture_output=True, text=True, timeout=DEADLINE_S, env={**os.environ, **(env or {})}
    )


@contextlib.contextmanager
def started(*words: str) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command(*words), stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def pids_of(process: subprocess.Popen[str], ranks: int) -> list[int]:
    """Waits until every rank has said "ready <pid> ..." and returns all numbers after it."""
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(ranks)]
    assert all("ready" in line for line in lines), lines
    return [int(pid) for line in lines for pid in line.split("ready")[1].split()]


def wait_until_gone(pids: Sequence[int]) -> None:
    """Ends when every process is dead. A zombie counts: whoever inherits it reaps it."""
    with selectors.DefaultSelector() as selector:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                selector.register(os.pidfd_open(pid), selectors.EVENT_READ)
        end = time.monotonic() + DEADLINE_S
        while selector.get_map():
            ready = selector.select(end - time.monotonic())
            assert ready, f"still alive: {len(selector.get_map())} of {pids}"
            for key, _ in ready:
                selector.unregister(key.fd)
                os.close(key.fd)


def test_every_line_comes_whole_with_its_rank_in_front(program: Callable[..., str]) -> None:
    done = run(
        "-n",
        "3",
        program("print('x' * 300_000); print('to err', rank, file=sys.stderr); sys.stdout.write('end')"),
    )
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == sorted(
        f"[{r}] {text}" for r in range(3) for text in ("x" * 300_000, "end")
    )
    assert sorted(done.stderr.splitlines()) == [f"[{r}] to err {r}" for r in range(3)]


def test_a_progress_bar_shows_its_last_state(program: Callable[..., str]) -> None:
    done = run("-n", "1", program(r"sys.stdout.write('10 %\r50 %\r100 %\n')"))
    assert done.stdout == "[0] 100 %\n"


def test_the_first_failing_rank_is_last_on_screen_and_its_code_is_ours(program: Callable[..., str]) -> None:
    script = program(
        "if rank == 2: print('\\n'.join(f'noise {i}' for i in range(100)), file=sys.stderr); raise ValueError('boom')",
        WAIT,
    )
    done = run("-n", "4", script)
    assert done.returncode == 1
    report = done.stderr.split("pycollective run: ")[1].splitlines()
    assert report[0] == "rank 2 failed first (exit code 1); the others were stopped. Its last lines:"
    assert report[-1] == "ValueError: boom"
    assert "Traceback (most recent call last):" in report
    assert len(report) == 41
    assert report[1].startswith("noise ")


@pytest.mark.parametrize(
    ("statement", "code"), [("sys.exit(7)", 7), ("os.kill(os.getpid(), signal.SIGKILL)", 137)]
)
def test_the_exit_code_is_the_failing_ranks(program: Callable[..., str], statement: str, code: int) -> None:
    assert run("-n", "2", program(f"if rank == 1: {statement}", WAIT)).returncode == code


def test_a_crash_shows_the_python_stack(program: Callable[..., str]) -> None:
    done = run(
        "-n",
        "2",
        program("def crashes(): os.kill(os.getpid(), signal.SIGSEGV)", "if rank == 1: crashes()", WAIT),
    )
    assert done.returncode == 139
    assert "failed first (signal SIGSEGV)" in done.stderr
    assert "in crashes" in done.stderr.split("Its last lines:")[1]


def test_a_rank_that_only_reports_anothers_end_is_not_the_culprit(program: Callable[..., str]) -> None:
    script = program(
        "class PeerFailure(Exception): __module__ = 'pycollective.errors'",
        "if rank == 0: raise PeerFailure('rank 1 is gone')",
        "signal.signal(signal.SIGALRM, lambda *_: sys.exit(3))",
        "if rank == 1: signal.setitimer(signal.ITIMER_REAL, 0.3)",  # ends later than its victim
        WAIT,
    )
    done = run("-n", "3", script)
    assert done.returncode == 3
    assert "rank 1 failed first (exit code 3)" in done.stderr


def test_verdict_prefers_a_reason_of_ones_own() -> None:
    victim, guilty = Failure(0, 1, consequence=True), Failure(3, -9, consequence=False)
    assert culprit([victim, guilty]) is guilty
    assert culprit([victim]) is victim
    assert culprit([]) is None
    assert (guilty.exit_code, guilty.cause) == (137, "signal SIGKILL")
    assert is_consequence(
        [b"Traceback (most recent call last):", b'  File "x"', b"pycollective.PeerExited: rank 2"]
    )
    assert not is_consequence(
        [b"pycollective.PeerExited: rank 2", b"Traceback:", b'  File "x"', b"ValueError: PeerExited"]
    )
    assert not is_consequence([b"Aborted!"])  # what command line programs say when their user gives up
    assert is_consequence([b"pycollective.errors.Aborted: this group has ended"])


def test_ranks_that_ignore_sigterm_are_killed_after_the_grace_time(program: Callable[..., str]) -> None:
    script = program("signal.signal(signal.SIGTERM, signal.SIG_IGN)", "if rank == 1: sys.exit(5)", WAIT)
    begin = time.monotonic()
    assert run("-n", "2", "--grace", "0.5", script).returncode == 5
    assert time.monotonic() - begin < 5


def test_what_a_rank_started_ends_with_the_world(program: Callable[..., str]) -> None:
    script = program("child = subprocess.Popen(['sleep', '1000'])", "print('ready', child.pid, flush=True)")
    with started("-n", "2", script) as process:
        children = pids_of(process, 2)
        assert process.wait(DEADLINE_S) == 0
        wait_until_gone(children)


def test_killing_the_launcher_leaves_no_process(program: Callable[..., str]) -> None:
    script = program(
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)",
        "child = subprocess.Popen(['sleep', '1000'], start_new_session=False)",
        "print('ready', os.getpid(), child.pid, flush=True)",
        WAIT,
    )
    with started("-n", "3", script) as process:
        pids = pids_of(process, 3)
        assert len(pids) == 6
        process.kill()
        wait_until_gone(pids)


def test_ranks_end_even_if_the_launchers_guard_is_killed_first(program: Callable[..., str]) -> None:
    with started("-n", "2", program(READY, WAIT)) as process:
        ranks = pids_of(process, 2)
        children = [
            int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        ]
        (guard,) = set(children) - set(ranks)
        os.kill(guard, signal.SIGKILL)
        wait_until_gone([guard])
        process.kill()
        wait_until_gone(ranks)


def test_ctrl_c_reaches_every_rank(program: Callable[..., str]) -> None:
    with started("-n", "2", program(READY, WAIT)) as process:
        pids = pids_of(process, 2)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 130
        assert stderr.count("KeyboardInterrupt") == 2
        wait_until_gone(pids)


def test_a_second_ctrl_c_kills(program: Callable[..., str]) -> None:
    script = program(
        "signal.signal(signal.SIGINT, lambda *_: print('no', flush=True))",
        READY,
        "while True: signal.pause()",
    )
    with started("-n", "2", script) as process:
        pids = pids_of(process, 2)
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        assert {process.stdout.readline(), process.stdout.readline()} == {"[0] no\n", "[1] no\n"}
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 130
        wait_until_gone(pids)


def test_sigterm_is_passed_on_and_ranks_may_save_their_work(program: Callable[..., str]) -> None:
    script = program(
        "def save(*_): print('saved', rank, flush=True); sys.exit(0)",
        "signal.signal(signal.SIGTERM, save)",
        READY,
        WAIT,
    )
    with started("-n", "2", script) as process:
        pids_of(process, 2)
        process.send_signal(signal.SIGTERM)
        stdout, _ = process.communicate(timeout=DEADLINE_S)
        assert sorted(stdout.splitlines()) == ["[0] saved 0", "[1] saved 1"]
        assert process.returncode == 143


def test_user_signals_are_passed_on_to_the_ranks_alone(program: Callable[..., str]) -> None:
    script = program(
        "child = subprocess.Popen(['sleep', '1000'])",
        "signal.signal(signal.SIGUSR1, lambda *_: sys.exit(0 if child.poll() is None else 9))",
        READY,
        "while True: signal.pause()",
    )
    with started("-n", "2", script) as process:
        pids_of(process, 2)
        process.send_signal(signal.SIGUSR1)
        assert process.wait(DEADLINE_S) == 0


def test_the_world_ends_when_nobody_reads(program: Callable[..., str]) -> None:
    with started("-n", "2", program(READY, "while True: print('more')")) as process:
        pids = pids_of(process, 1)
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(DEADLINE_S) == 141
        wait_until_gone(pids)


def test_the_key_is_in_a_descriptor_and_nowhere_else(program: Callable[..., str]) -> None:
    script = program(
        "key = os.pread(int(os.environ['PYCOLLECTIVE_KEY_FD']), 100, 0)",
        "seen = b''.join(open(f'/proc/{pid}/{name}', 'rb').read() for pid in ('self', os.getppid())"
        " for name in ('cmdline', 'environ'))",
        "print(len(key), key in seen, key.hex().encode() in seen.lower(), key.hex())",
    )
    done = run("-n", "2", script)
    assert done.returncode == 0, done.stderr
    words = [line.split() for line in done.stdout.splitlines()]
    assert [each[1:4] for each in words] == [["32", "False", "False"]] * 2
    assert words[0][4] == words[1][4]
    assert run("-n", "1", script).stdout.split()[4] != words[0][4]  # every job has its own


def test_ranks_find_their_place_in_the_environment(program: Callable[..., str]) -> None:
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    script = program(
        f"print(*[os.environ[p + n] for p in ('', 'PYCOLLECTIVE_') for n in {names}], os.environ['MASTER_ADDR'])"
    )
    done = run("-n", "2", script)
    assert sorted(done.stdout.splitlines()) == [f"[{r}] {r} 2 {r} 2 {r} 2 {r} 2 127.0.0.1" for r in range(2)]


def test_threads_per_rank_share_the_cores_unless_told_otherwise() -> None:
    cores = len(os.sched_getaffinity(0))
    world = World(size=2, store="127.0.0.1:1", master_port=2)
    base = {"TORCHELASTIC_RUN_ID": "outer", "HOME": "/"}
    assert rank_environment(base, world, 0, 3)["OMP_NUM_THREADS"] == str(max(1, cores // 2))
    assert rank_environment({**base, "OMP_NUM_THREADS": "7"}, world, 0, 3)["OMP_NUM_THREADS"] == "7"
    assert "TORCHELASTIC_RUN_ID" not in rank_environment(base, world, 0, 3)


def test_log_files_have_what_each_rank_wrote(program: Callable[..., str], tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    script = program("print('out', rank); print('err', rank, file=sys.stderr); sys.exit(len(sys.argv) - 1)")
    failed = run("-n", "1", "--log-dir", str(logs), script, "any")
    assert failed.returncode == 1
    assert f"logs: {logs}" in failed.stderr
    assert run("-n", "2", "--log-dir", str(logs), script).returncode == 0
    found = {path.name: path.read_text() for path in logs.iterdir()}
    assert found == {f"rank{r}.{name}": f"{name} {r}\n" for r in range(2) for name in ("out", "err")}


def test_a_log_file_that_cannot_be_opened_is_an_error_before_any_rank_is_started(
    program: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "logs" / "rank0.out").mkdir(parents=True)
    done = run("-n", "1", "--log-dir", str(tmp_path / "logs"), program("print('started')"))
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == f"pycollective run: cannot write {tmp_path}/logs/rank0.out: Is a directory\n"
    (tmp_path / "file").touch()
    assert run("-n", "1", "--log-dir", str(tmp_path / "file"), program("")).returncode == 1


def test_a_full_disk_under_the_log_ends_the_world(program: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "rank1.out").symlink_to("/dev/full")
    done = run("-n", "2", "--log-dir", str(tmp_path / "logs"), program("print('x' * 400_000)", WAIT))
    assert done.returncode == 1
    assert (
        f"cannot write {tmp_path}/logs/rank1.out: No space left on device; the ranks were stopped"
        in done.stderr
    )


def test_a_full_disk_under_the_screen_ends_the_world(program: Callable[..., str]) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command("-n", "1", program("print('x')", WAIT)),
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=DEADLINE_S,
        )  # fmt: skip
    assert done.returncode == 1
    assert "cannot write what the ranks print: No space left on device" in done.stderr


def test_ctrl_c_is_heard_while_the_reader_of_the_output_pauses(program: Callable[..., str]) -> None:
    with started("-n", "2", program(READY, "while True: print('x' * 1000)")) as process:
        pids = pids_of(process, 1)
        assert process.stdout is not None
        wait_until_full(process.stdout.fileno())
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 130  # nobody has read on
        wait_until_gone(pids)


def wait_until_full(pipe: int) -> None:
    """Returns when the pipe that we read takes no more."""
    end = time.monotonic() + DEADLINE_S
    other_end = os.open(f"/proc/self/fd/{pipe}", os.O_WRONLY | os.O_NONBLOCK)
    try:
        while select.select([], [other_end], [], 0)[1]:
            assert time.monotonic() < end
    finally:
        os.close(other_end)


def test_a_reader_that_pauses_longer_than_the_ranks_live_gets_all_lines(program: Callable[..., str]) -> None:
    script = program("for i in range(20_000): print(rank, i)", "print('last', end='')")
    with started("-n", "2", script) as process:
        assert process.stdout is not None
        wait_until_full(process.stdout.fileno())
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(3)  # it does not give up
        stdout, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    wanted = [f"[{r}] {r} {i}" for r in range(2) for i in range(20_000)] + ["[0] last", "[1] last"]
    assert sorted(stdout.splitlines()) == sorted(wanted)


def test_killing_the_guard_does_not_spoil_a_successful_run(program: Callable[..., str]) -> None:
    with started(
        "-n",
        "2",
        program("signal.signal(signal.SIGUSR1, lambda *_: sys.exit(0))", READY, "while True: signal.pause()"),
    ) as process:
        ranks = pids_of(process, 2)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        (guard,) = {int(pid) for pid in children} - set(ranks)
        os.kill(guard, signal.SIGKILL)
        wait_until_gone([guard])
        process.send_signal(signal.SIGUSR1)
        _, stderr = process.communicate(timeout=DEADLINE_S)
        assert (process.returncode, stderr) == (0, "")


def test_the_benchmark_runs_as_a_module_so_that_ours_do_not_shadow_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commands = []
    monkeypatch.setattr("pycollective.launch.run.run", lambda options: commands.append(options.command) or 0)
    assert cli.main(["bench", "--iters", "3"]) == 0
    assert commands[0][:3] == [sys.executable, "-m", "pycollective.bench"]


def test_the_benchmark_refuses_a_negative_number_of_iterations(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["bench", "--iters", "-5"])
    assert "must be at least 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["-m", "pycollective"], [shutil.which("pycollective", path=os.path.dirname(sys.executable))]]
)
def test_it_is_installed_as_a_command_and_as_a_module(words: list[str | None]) -> None:
    if words == [None]:
        pytest.skip("pycollective was not installed by pip: there is no script next to this Python")
    line = [sys.executable, *words] if words[0] == "-m" else words
    done = subprocess.run(
        [*map(str, line), "run", "-n", "2", *SAY_HI], capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert sorted(done.stdout.splitlines()) == ["[0] hi", "[1] hi"], done.stderr


def test_modules_and_other_commands_run_too(tmp_path: Path) -> None:
    assert run("-n", "1", "-m", "platform").stdout.startswith("[0] Linux")
    assert run("-n", "1", "--", "sh", "-c", "echo $RANK; exit 4").returncode == 4
    assert run("-n", "1", "--no-prefix", *SAY_HI).stdout == "hi\n"
    missing = run("-n", "2", str(tmp_path / "missing"))
    assert missing.returncode == 127
    assert "No such file" in missing.stderr


def test_colour_only_on_a_terminal_and_without_no_color() -> None:
    for extra, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        primary, secondary = os.openpty()
        with open(primary, "rb", buffering=0) as screen:
            process = subprocess.Popen(
                command("-n", "1", *SAY_HI),
                stdout=secondary,
                stderr=secondary,
                env={**environment, **extra},
            )
            os.close(secondary)
            text = read_all(screen)
            assert process.wait(DEADLINE_S) == 0
        assert (b"\x1b[36m[0]\x1b[0m hi" in text) == coloured
        assert (b"[0] hi" in text) != coloured


def read_all(screen: IO[bytes]) -> bytes:
    text = b""
    with contextlib.suppress(OSError):  # EIO: the other side of the terminal has closed
        while data := screen.read(4096):
            text += data
    return text


SUM = """
import numpy as np, sys, pycollective as pc
pc.init()
x = np.full(1000, pc.rank() + 1.0)
pc.allreduce(x)
assert (x == sum(range(1, pc.size() + 1))).all()
sys.stdout.write(f"rank {pc.rank()} of {pc.size()}, local {pc.local_rank()}\\n")  # one write, so that lines stay whole
pc.shutdown()
"""


def test_ranks_of_pycollective_run_form_a_world(tmp_path: Path) -> None:
    script = tmp_path / "sum.py"
    script.write_text(SUM)
    done = run("-n", "4", str(script))
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[{r}] rank {r} of 4, local {r}" for r in range(4)]


def test_ranks_started_by_hand_form_a_world_while_master_port_is_taken(tmp_path: Path) -> None:
    import socket

    script = tmp_path / "sum.py"
    script.write_text(SUM)
    with socket.create_server(("127.0.0.1", 0)) as taken:  # as torchrun's agent does
        base = {
            **os.environ,
            "WORLD_SIZE": "2",
            "MASTER_ADDR": "localhost",
            "MASTER_PORT": str(taken.getsockname()[1]),
        }
        pipe = subprocess.PIPE
        ranks = [
            subprocess.Popen(
                [sys.executable, script], env={**base, "RANK": r, "LOCAL_RANK": r}, stdout=pipe, text=True
            )
            for r in ("0", "1")
        ]
        output = [each.communicate(timeout=DEADLINE_S)[0] for each in ranks]
    assert output == ["rank 0 of 2, local 0\n", "rank 1 of 2, local 1\n"]


@pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torchrun comes with PyTorch, which is not installed"
)
def test_torchrun_works_as_it_is(tmp_path: Path) -> None:
    script = tmp_path / "sum.py"
    script.write_text(SUM)
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        str(script),
    ]
    done = subprocess.run(torchrun, capture_output=True, text=True, timeout=80)
    assert done.returncode == 0, done.stderr
    assert sorted(re.findall(r"rank \d of 2, local \d", done.stdout)) == [
        "rank 0 of 2, local 0",
        "rank 1 of 2, local 1",
    ]
