"""`pycollective run`: what the user sees, its exit code, and that no process survives."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import importlib.util
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from pycollective import cli
from pycollective.bootstrap.detect import detect
from pycollective.bootstrap.key import key_file
from pycollective.launching import child
from pycollective.launching.environment import World, rank_environment
from pycollective.launching.failures.last_error import HEADER
from pycollective.launching.failures.root_cause import Failure, is_consequence, root_cause
from pycollective.launching.local_ranks import LocalRanks
from pycollective.launching.options import Options

pytestmark = pytest.mark.timeout(90)

DEADLINE_S = 40.0
SAY_HI = (sys.executable, "-c", "print('hi')")  # a command that does not depend on PATH
# Ranks are plain Python here. Other tests cover their communication.
READY = "print('ready', os.getpid(), flush=True)"
WAIT = "import threading; threading.Event().wait()"
# Blocks the signal until the launcher passes it on, so no race loses it.
BLOCK_USR1 = "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})"
AWAIT_USR1 = "signal.sigwait({signal.SIGUSR1})"


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
def started(*words: str, wrapper: Sequence[str] = ()) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [*wrapper, *command(*words)], stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def pids_of(process: subprocess.Popen[str], ranks: int) -> list[int]:
    """Waits until every rank has printed "ready <pid> ..." and returns all numbers after it."""
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(ranks)]
    assert all("ready" in line for line in lines), lines
    return [int(pid) for line in lines for pid in line.split("ready")[1].split()]


def wait_until_gone(pids: Sequence[int]) -> None:
    """Returns when every process is dead. A zombie counts, because its new parent reaps it."""
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
    done = run("-n", "2", program(f"if rank == 1: {statement}", WAIT))
    assert done.returncode == code
    assert "the others were stopped. " in done.stderr
    assert "It wrote nothing" in done.stderr


def test_a_crash_shows_the_python_stack(program: Callable[..., str]) -> None:
    done = run(
        "-n",
        "2",
        program("def crashes(): os.kill(os.getpid(), signal.SIGSEGV)", "if rank == 1: crashes()", WAIT),
    )
    assert done.returncode == 139
    assert "failed first (signal SIGSEGV)" in done.stderr
    assert "in crashes" in done.stderr.split("Its last lines:")[1]


def test_a_rank_that_only_reports_anothers_end_is_not_the_root_cause(
    program: Callable[..., str], tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    script = program(
        "class PeerFailure(Exception): __module__ = 'pycollective.errors'",
        "if rank < 2: open(os.path.join(os.path.dirname(__file__), 'pipe'), 'wr'[rank]).close()",
        "if rank == 0: raise PeerFailure('rank 1 is gone')",
        "signal.signal(signal.SIGALRM, lambda *_: sys.exit(3))",
        "if rank == 1: signal.setitimer(signal.ITIMER_REAL, 0.3)",  # ends later than its victim
        WAIT,
    )
    done = run("-n", "3", script)
    assert done.returncode == 3
    assert "rank 1 failed first (exit code 3, as after sys.exit(3))" in done.stderr


SLOW = (
    "class PeerFailure(Exception): __module__ = 'pycollective.errors'",
    "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})",
    # both ranks block the signal before either continues
    "open(os.path.join(os.path.dirname(__file__), 'pipe'), 'rw'[rank]).close()",
    "if rank == 0: raise PeerFailure('rank 1 is gone')",
    "signal.sigwait({signal.SIGTERM})",  # sent after the grace period of the other ranks
)


def test_a_root_cause_that_ends_after_the_others_were_stopped_is_the_root_cause(
    program: Callable[..., str], tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    done = run("-n", "2", program(*SLOW, "raise ValueError('the cause')"))
    assert "rank 1 failed first" in done.stderr
    assert done.stderr.splitlines()[-1] == "ValueError: the cause"
    done = run("-n", "2", program(*SLOW, "sys.exit(3)"))  # its reaction to the request to stop
    assert "rank 0 failed first" in done.stderr


def test_what_a_rank_wrote_counts_though_it_arrives_after_its_end() -> None:
    """The task that reads its output, and so the launcher, may pause."""

    async def root_causes() -> list[int]:
        ranks = LocalRanks(
            Options(ranks=2, command=["true"]), World(size=2, store=None, master_port=1), -1, {}
        )
        ranks.ends = [(0, 1), (1, 1)]
        found = [root_cause(ranks.failures)]
        ranks.screen.tails[0].add([HEADER, b"pycollective.errors.PeerFailure: rank 1 failed"])
        found.append(root_cause(ranks.failures))
        return [each.rank for each in found if each]

    assert asyncio.run(root_causes()) == [0, 1]


def test_the_root_cause_is_a_failure_for_a_reason_of_its_own() -> None:
    victim, guilty = Failure(0, 1, consequence=True), Failure(3, -9, consequence=False)
    assert [root_cause(each) for each in ([victim, guilty], [victim], [])] == [guilty, victim, None]
    assert (guilty.exit_code, guilty.cause) == (137, "signal SIGKILL")
    assert is_consequence(
        [b"Traceback (most recent call last):", b'  File "x"', b"pycollective.PeerExited: rank 2"]
    )
    assert not is_consequence(
        [
            b"pycollective.PeerExited: rank 2",
            b"Traceback (most recent call last):",
            b'  File "x"',
            b"ValueError: PeerExited",
        ]
    )
    assert not is_consequence([b"Aborted!"])  # what command line programs print when their user gives up
    assert is_consequence([b"pycollective.errors.Aborted: this group has ended"])


def test_ranks_that_ignore_sigterm_are_killed_after_the_grace_time(program: Callable[..., str]) -> None:
    script = program(
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)",
        BLOCK_USR1,
        READY,
        AWAIT_USR1,
        "if rank == 1: sys.exit(5)",
        WAIT,
    )
    with started("-n", "2", "--grace", "0.5", script) as process:
        pids = pids_of(process, 2)
        begin = time.monotonic()
        process.send_signal(signal.SIGUSR1)
        assert process.wait(DEADLINE_S) == 5
        assert time.monotonic() - begin >= 0.5
        wait_until_gone(pids)


def test_the_grace_time_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []
    monkeypatch.setattr("pycollective.launching.run.run", lambda options: given.append(options.grace_s) or 0)
    assert cli.main(["run", "--grace", "0.5", "true"]) == 0
    assert given == [0.5]


@pytest.mark.parametrize("ranks", [25, 100])  # too few descriptors: for the last pipes, for the keys
def test_a_start_that_fails_is_reported_in_a_line_and_leaves_nothing(ranks: int) -> None:
    words = command("-n", str(ranks), "--", sys.executable, "-c", WAIT)
    done = subprocess.run(
        ["sh", "-c", 'ulimit -n 64; exec "$@"', "sh", *words],
        capture_output=True, text=True, timeout=DEADLINE_S,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == (
        "pycollective run: cannot start the ranks: Too many open files; raise the limit with `ulimit -n`\n"
    )


def test_no_key_file_stays_open_if_one_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []

    def two_only(key: bytes) -> int:
        if len(opened) == 2:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        opened.append(key_file(key))
        return opened[-1]

    monkeypatch.setattr(child, "key_file", two_only)
    with pytest.raises(OSError, match="Too many open files"), child.key_files(b"k" * 32, 3):
        pass
    assert len(opened) == 2
    for fd in opened:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)


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
        assert stderr.count("KeyboardInterrupt") + stderr.count("the same error as rank") == 2
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


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_what_was_ignored_before_the_start_stays_ignored(
    program: Callable[..., str], number: signal.Signals
) -> None:
    """As under nohup: the signal ends neither the launcher nor the ranks."""
    ready = f"print('ready', int(signal.getsignal({number:d}) is signal.SIG_IGN), flush=True)"
    ignoring = ["sh", "-c", f'trap "" {number:d}; exec "$@"', "sh"]
    with started("-n", "2", program(BLOCK_USR1, ready, AWAIT_USR1), wrapper=ignoring) as process:
        assert pids_of(process, 2) == [1, 1]
        process.send_signal(number)
        process.send_signal(signal.SIGUSR1)
        assert process.wait(DEADLINE_S) == 0


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


def test_the_world_ends_when_nothing_is_read(program: Callable[..., str]) -> None:
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


def test_threads_per_rank_share_the_cores_unless_specified_otherwise() -> None:
    cores = len(os.sched_getaffinity(0))
    world = World(size=2, store="127.0.0.1:1", master_port=2)
    base = {"HOME": "/"}
    assert rank_environment(base, world, 0, 3)["OMP_NUM_THREADS"] == str(max(1, cores // 2))
    assert rank_environment({**base, "OMP_NUM_THREADS": "7"}, world, 0, 3)["OMP_NUM_THREADS"] == "7"


def test_what_an_outer_launcher_has_set_for_its_own_ranks_does_not_reach_ours() -> None:
    base = {"TORCHELASTIC_RUN_ID": "outer", "PYCOLLECTIVE_LAUNCHER": "slurm", "HOME": "/"}
    inside = rank_environment(base, World(size=2, store="127.0.0.1:1", master_port=2), 0, 3)
    assert inside["HOME"] == "/"
    assert not {"TORCHELASTIC_RUN_ID", "PYCOLLECTIVE_LAUNCHER"} & set(inside)


def test_paddles_functions_know_the_place_and_nothing_of_an_outer_launcher_of_its() -> None:
    outer = {
        "PADDLE_TRAINER_ID": "7",
        "PADDLE_TRAINER_ENDPOINTS": "a:1,b:2",
        "PADDLE_CURRENT_ENDPOINT": "b:2",
    }
    for store in ("127.0.0.1:1", None):  # with a store of the launcher, or over several machines
        world = World(size=4, store=store, master_port=2, store_port=2, first=2, local_size=2)
        inside = rank_environment({**outer, "PADDLE_HOME": "/"}, world, 3, 3)
        paddles = {name: value for name, value in inside.items() if name.startswith("PADDLE_")}
        assert paddles == {
            "PADDLE_TRAINER_ID": "3",
            "PADDLE_TRAINERS_NUM": "4",
            "PADDLE_RANK_IN_NODE": "1",
            "PADDLE_HOME": "/",
        }
    assert (detect(inside).launcher, detect(inside).rank) == ("torch variables", 3)


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


def test_programs_that_follow_each_other_in_one_job_connect_each_time(tmp_path: Path) -> None:
    script = tmp_path / "sum.py"
    script.write_text(SUM)
    program = f"{sys.executable} {script}"
    done = run("-n", "2", "bash", "-c", f"{program} && {program} && {program}")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 3 * 2


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


WITHOUT_LOOPBACK = ("unshare", "--map-root-user", "--net")


def test_loopback_that_is_down_is_reported_before_a_rank_is_started() -> None:
    if subprocess.run([*WITHOUT_LOOPBACK, "true"], capture_output=True, timeout=DEADLINE_S).returncode:
        pytest.skip("no namespaces here")
    done = subprocess.run(
        [*WITHOUT_LOOPBACK, *command("-n", "2", *SAY_HI)], capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert re.search(
        r"cannot start the ranks: .*loopback interface of .* is down .*ip link set lo up", done.stderr
    )
