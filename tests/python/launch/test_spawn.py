"""pc.run and pc.launch: results, refusals, and no surviving process. Runs docs/run.md, too."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import io
import os
import re
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest
from terminals import on_a_terminal, read_to_end, read_until, rows_of

import pycollective as pc
from pycollective.launching import child, spawn

pytestmark = pytest.mark.timeout(60)

DEADLINE_S = 40.0
PAGE = Path(__file__).resolve().parents[3] / "docs" / "run.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
no_copies = pytest.mark.skipif(not importlib.util.find_spec("cloudpickle"), reason="cloudpickle is missing")


def total(scale: float, *, plus: float = 0.0) -> tuple[int, float]:
    x = np.full(5, scale * (pc.rank() + 1))
    return pc.rank(), float(pc.allreduce(x)[4]) + plus


def in_world() -> bool:
    return pc.is_initialized()


@pc.launch(n=2)
def launched(word: str, *, twice: bool = False) -> tuple[str, int]:
    return word * (2 if twice else 1), pc.rank()


@pc.launch
def on_all_cores() -> bool:
    return pc.is_initialized()


def calls_launched() -> object:
    return launched("x")


# Results


def test_results_come_in_rank_order_and_arguments_reach_every_rank() -> None:
    assert pc.run(total, 0.5, kwargs={"plus": 1.0}, n=3) == [(0, 4.0), (1, 4.0), (2, 4.0)]


def test_there_are_as_many_ranks_as_cores_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spawn, "ranks_by_default", lambda: 2)
    assert on_all_cores() == [True, True]


def test_init_can_be_left_to_the_function() -> None:
    assert pc.run(in_world, n=1, init=False) == [False]


def test_a_launched_function_runs_on_its_ranks() -> None:
    assert launched("a", twice=True) == [("aa", 0), ("aa", 1)]
    assert launched.__name__ == "launched"


def test_a_launched_function_just_runs_on_a_rank_and_in_a_world() -> None:
    assert pc.run(calls_launched, n=3) == [("x", 0), ("x", 1), ("x", 2)]
    pc.init()
    try:
        assert launched("x") == ("x", 0)
    finally:
        pc.shutdown()


def test_a_launched_function_does_not_make_a_world_per_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYCOLLECTIVE_RANK", "1")
    with pytest.raises(pc.InvalidArgument, match=r"rank 1 of `pycollective run`.*Call pycollective.init\(\)"):
        launched("x")


@no_copies
def test_local_functions_and_lambdas_travel_as_copies() -> None:
    offset = 10

    @pc.launch(n=2)
    def local(scale: int) -> object:
        return Local(scale * pc.rank() + offset)

    class Local:
        def __init__(self, value: int) -> None:
            self.value = value

    found: list[Any] = local(2)
    assert [(type(each) is Local, each.value) for each in found] == [(True, 10), (True, 12)]
    assert pc.run(lambda f: f(pc.rank()), lambda x: x + offset, n=2) == [10, 11]


def test_without_cloudpickle_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)

    def local() -> None:
        pass

    for refused, why in ((lambda: None, "a lambda has no name"), (local, "it is defined inside a function")):
        with pytest.raises(pc.InvalidArgument, match=f"{why}.*top level of a module.*install cloudpickle"):
            pc.run(refused, n=1)
    with pytest.raises(pc.InvalidArgument, match=r"argument 0 \(function\) cannot be .*install cloudpickle"):
        pc.run(in_world, lambda: None, n=1)


# Failures


class Boom(Exception):
    pass


def one_raises(error: Exception) -> None:
    if pc.rank() == 1:
        raise error
    pc.barrier()  # raises PeerFailure, maybe before its root cause has ended


def test_the_exception_of_the_rank_that_failed_first_is_raised_here() -> None:
    with pytest.raises(Boom, match="shown") as caught:
        pc.run(one_raises, Boom("shown"), n=3)
    cause = caught.value.__cause__
    assert isinstance(cause, pc.RemoteError)
    assert cause.peer == 1
    assert "on rank 1: Traceback" in str(cause)
    assert "in one_raises\n    raise error" in str(cause)


def accuses() -> None:
    """Rank 0 reports that rank 1 has failed. Rank 1 fails once rank 0 is gone."""
    if pc.rank() == 0:
        pc.send(np.array([os.getpid()]), 1)
        raise pc.PeerFailure("rank 1 is gone")
    ended = os.pidfd_open(int(pc.recv(np.zeros(1, int), 0)[0]))
    select.select([ended], [], [], DEADLINE_S)
    raise Boom("the reason")


def test_a_rank_that_only_reports_anothers_end_is_not_the_root_cause() -> None:
    with pytest.raises(Boom, match="the reason"):
        pc.run(accuses, n=2)


def accuses_one_that_is_slow(fifo: Path) -> None:
    """Rank 1 fails once its parent requests its end, because rank 0 has failed."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    is_rank_0 = os.environ["RANK"] == "0"
    with open(fifo, "rb" if is_rank_0 else "wb"):  # both ranks block the signal before either continues
        pass
    if is_rank_0:
        raise pc.PeerFailure("rank 1 is gone")
    signal.sigwait({signal.SIGTERM})
    raise Boom("the reason")


def test_a_root_cause_that_ends_after_the_others_were_stopped_is_the_root_cause(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(spawn, "SETTLE_S", 0.1)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(Boom, match="the reason"):
        pc.run(accuses_one_that_is_slow, tmp_path / "fifo", n=2, init=False)


def reports(fifo: Path) -> None:
    """Rank 0 fails once rank 1 has left init(), which would report the end of rank 0."""
    with open(fifo, "rb" if pc.rank() == 0 else "wb"):  # opens when both ranks open it
        if pc.rank() == 0:
            raise pc.PeerFailure("of another host")
        threading.Event().wait()


def test_a_report_without_an_explanation_is_raised(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(spawn, "SETTLE_S", 0.1)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(pc.PeerFailure, match="of another host"):
        pc.run(reports, tmp_path / "fifo", n=2)


class OnlyThere(Exception):
    def __reduce__(self) -> tuple[object, ...]:
        return made_on, (os.getpid(),)


def made_on(pid: int) -> OnlyThere:
    if pid != os.getpid():
        raise ImportError("not here")
    return OnlyThere()


def raises_what_is_only_there() -> None:
    raise OnlyThere("shown anyway")


def returns_what_is_only_there() -> object:
    return OnlyThere()


def test_what_cannot_be_unpickled_here_is_reported_by_remote_error() -> None:
    with pytest.raises(pc.RemoteError, match="on rank 0: (.|\n)*OnlyThere: shown anyway"):
        pc.run(raises_what_is_only_there, n=1, init=False)
    with pytest.raises(pc.RemoteError, match="the result of rank 0 cannot be unpickled here.*not here"):
        pc.run(returns_what_is_only_there, n=1, init=False)


def ends(how: str) -> object:
    if pc.rank() != 1:
        pc.barrier()
    if how == "exit":
        sys.exit(3)
    if how == "_exit":
        os._exit(0)
    if how == "kill":
        print("last words", file=sys.stderr)
        os.kill(os.getpid(), signal.SIGKILL)
    return threading.Lock()


def test_a_rank_that_exits_has_failed() -> None:
    with pytest.raises(pc.RemoteError, match=r"rank 1 called sys.exit\(3\), without a result"):
        pc.run(ends, "exit", n=2)
    with pytest.raises(pc.PeerFailure, match=r"rank 1 \(pid \d+\) ended with exit code 0, without a result"):
        pc.run(ends, "_exit", n=2)


def test_a_killed_rank_is_named_with_its_signal_and_last_words() -> None:
    with pytest.raises(
        pc.PeerFailure, match=r"rank 1 .*SIGKILL .*memory.*its last lines:\nlast words"
    ) as caught:
        pc.run(ends, "kill", n=2)
    assert (caught.value.peer, caught.value.cause) == (1, "was killed by SIGKILL")
    assert caught.value.pid


def test_a_result_that_cannot_be_pickled_names_its_rank() -> None:
    with pytest.raises(TypeError, match=r"rank 1: the result cannot be pickled \(lock\)"):
        pc.run(ends, "return", n=2)


def test_an_argument_that_cannot_be_pickled_is_named_before_anything_starts() -> None:
    with pytest.raises(pc.InvalidArgument, match=r"argument 1 \(lock\) cannot be pickled"):
        pc.run(total, 1.0, threading.Lock(), n=2)
    with pytest.raises(pc.InvalidArgument, match=r"argument plus= \(lock\) cannot be pickled"):
        pc.run(total, 1.0, kwargs={"plus": threading.Lock()}, n=2)


def one_hangs() -> None:
    if pc.rank() == 1:
        print("pid", subprocess.Popen(["sleep", "1000"]).pid)
        threading.Event().wait()


def test_late_ranks_print_their_stacks_and_are_ended(capsys: pytest.CaptureFixture[str]) -> None:
    for timeout in (3, 12, 48):  # on a busy machine the ranks may not have begun by then
        waited = rf"run\(timeout={timeout}\): still running: .*rank 1"
        with pytest.raises(pc.CollectiveTimeout, match=waited) as caught:
            pc.run(one_hangs, n=2, timeout=timeout)
        assert isinstance(caught.value, TimeoutError)
        printed = capsys.readouterr()
        if "[1] pid " in printed.out:
            break
    assert re.search(r"^\[1\]   File .* in one_hangs$", printed.err, re.MULTILINE)
    wait_until_gone([int(printed.out.split("[1] pid ")[1].split()[0])])


def test_ranks_that_cannot_be_started_end_with_those_that_were(monkeypatch: pytest.MonkeyPatch) -> None:
    pids = []

    def start(*args: Any, rank: int, **kwargs: Any) -> child.Child:
        if rank == 1:
            raise OSError(errno.EMFILE, "Too many open files")
        begun = really_start(*args, rank=rank, **kwargs)
        pids.append(begun.process.pid)
        return begun

    really_start = child.start
    monkeypatch.setattr(child, "start", start)
    with pytest.raises(pc.CollectiveError, match="cannot start rank 1: Too many open files; raise the limit"):
        pc.run(in_world, n=2)
    wait_until_gone(pids)
    assert pids


def prints() -> None:
    print("one\ntwo\r2")
    print("no newline", end="", file=sys.stderr)


def test_what_ranks_print_comes_out_in_whole_lines(capsys: pytest.CaptureFixture[str]) -> None:
    pc.run(prints, n=2, init=False)
    printed = capsys.readouterr()
    assert sorted(printed.out.splitlines()) == ["[0] 2", "[0] one", "[1] 2", "[1] one"]
    assert sorted(printed.err.splitlines()) == ["[0] no newline", "[1] no newline"]


def leaves_an_escaped_child() -> int:
    print("unfinished", end="")
    return subprocess.Popen(
        ["sleep", "1000"], start_new_session=True
    ).pid  # it keeps our standard output open


def test_a_reader_that_pauses_does_not_stop_the_clock(script: Callable[..., Path]) -> None:
    path = script(
        "import pycollective as pc",
        "def floods():",
        "    while True: print('x' * 1000)",
        "if __name__ == '__main__': pc.run(floods, n=1, init=False, timeout=1)",
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, path], stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stderr is not None
        try:
            assert "CollectiveTimeout: run(timeout=1): still running: rank 0" in process.stderr.read()
            assert process.wait(DEADLINE_S) == 1  # without a read of its output
        finally:
            process.kill()


def says_bytes() -> None:
    os.write(1, b"\xff \xe9 end\n")


def test_what_our_own_output_cannot_encode_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, encoding="latin-1"))
    pc.run(says_bytes, n=1, init=False)
    assert shown.getvalue() == rb"[0] \ufffd \ufffd end" + b"\n"


def test_what_escapes_from_a_rank_delays_no_other_rank(capsys: pytest.CaptureFixture[str]) -> None:
    (pid,) = pc.run(leaves_an_escaped_child, n=1, init=False)
    os.kill(pid, signal.SIGKILL)
    assert capsys.readouterr().out == "[0] unfinished\n"


def test_no_descriptor_is_left_open() -> None:
    pc.run(prints, n=1, init=False)
    before = sorted(os.listdir("/proc/self/fd"))
    pc.run(prints, n=1, init=False)
    assert sorted(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("n", [0, -1])
def test_a_world_without_ranks_is_refused(n: int) -> None:
    with pytest.raises(pc.InvalidArgument, match=f"n={n}"):
        pc.run(in_world, n=n)


# CUDA, and other state that does not survive a fork


class FakeCuda:
    """Fails as torch.cuda does if it was used before a fork."""

    used_in: int | None = None

    @classmethod
    def use(cls) -> str:
        if cls.used_in not in (None, os.getpid()):
            raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")
        cls.used_in = os.getpid()
        return "used"


@pytest.mark.fresh_ranks
def test_cuda_in_use_here_does_not_matter_to_ranks() -> None:
    FakeCuda.use()
    if (forked := os.fork()) == 0:
        with contextlib.suppress(RuntimeError):
            FakeCuda.use()
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]) == 1  # proves that the fake notices a fork
    assert pc.run(FakeCuda.use, n=2, init=False) == ["used", "used"]


# Counts


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"n": "2"}, r"run\(n='2'\): n must be an int, not str: write int\('2'\)"),
        ({"n": 2.0}, r"run\(n=2.0\): n must be an int, not float"),
        ({"n": True}, r"run\(n=True\): n must be an int, not bool"),
        ({"n": np.zeros(2)}, r"run\(n=array.*\): n must be an int, not ndarray"),
        ({"n": 1, "world_size": "2", "master": "a"}, r"run\(world_size='2'\): world_size must be an int"),
        ({"n": 1, "world_size": 2, "rank_start": "1", "master": "a"}, r"rank_start must be an int, not str"),
    ],
)
def test_a_count_that_is_no_int_is_refused_by_its_name(given: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        pc.run(in_world, **given)
    with pytest.raises(TypeError, match=message):
        pc.launch(**given)(in_world)()


# Scripts


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., Path]:
    def write(*lines: str, name: str = "script.py") -> Path:
        path = tmp_path / name
        path.write_text(
            "import os, sys, threading, subprocess\nimport pycollective as pc\n" + "\n".join(lines)
        )
        return path

    return write


def executed(*words: str | Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        capture_output=True, text=True, timeout=DEADLINE_S, env={**os.environ, **(env or {})},
    )  # fmt: skip


@pytest.mark.parametrize("block", range(len(BLOCKS)))
def test_the_examples_of_the_page_run(block: int, script: Callable[..., Path]) -> None:
    path = script()
    path.write_text(BLOCKS[block])
    done = executed(path)
    assert done.returncode == 0, done.stderr
    if said := re.search(r"print\(.*  # (.*)", BLOCKS[block]):
        assert done.stdout == said[1] + "\n"


def test_a_call_without_the_main_guard_starts_no_ranks_of_ranks(script: Callable[..., Path]) -> None:
    path = script(
        "open(sys.argv[1], 'a').write('executed\\n')",
        "def place(): return pc.rank()",
        "pc.run(place, n=2)",
    )
    log = path.with_name("log")
    done = executed(path, str(log))
    assert 'put that call under `if __name__ == "__main__":`' in done.stderr
    assert log.read_text().count("executed") in (2, 3)  # here, and on ranks until the first failure


def test_what_is_defined_under_the_main_guard_is_not_found(script: Callable[..., Path]) -> None:
    done = executed(script("if __name__ == '__main__':", "    def f(): pass", "    pc.run(f, n=1)"))
    last = done.stderr.splitlines()[-1]
    assert "without what is under `if __name__" in last
    assert "Define above it what the ranks need" in last


@no_copies
def test_classes_of_the_main_script_stay_what_they_are(script: Callable[..., Path]) -> None:
    done = executed(
        script(
            "class Config: pass",
            "def use(config, make): return isinstance(config, Config) and isinstance(make(), Config) and make()",
            "if __name__ == '__main__':",
            # a class found by name and in a function that was copied as code
            "    found = pc.run(use, Config(), lambda: Config(), n=2)",
            "    print([type(each) is Config for each in found])",
        )
    )
    assert done.stdout == "[True, True]\n", done.stderr


TYPED = "import pycollective as pc\ndef f(): return pc.rank()\nprint(pc.run(f, n=2))"


@no_copies
def test_what_was_typed_in_travels_as_a_copy() -> None:
    done = executed("-c", TYPED)
    assert done.stdout == "[0, 1]\n", done.stderr


def test_what_was_typed_in_is_refused_without_cloudpickle() -> None:
    done = executed("-c", "import sys; sys.modules['cloudpickle'] = None\n" + TYPED)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("pycollective.errors.InvalidArgument: f was typed in by hand")
    assert "Put it into a file" in last
    assert "install cloudpickle" in last


def test_a_terminal_shows_unfinished_lines(script: Callable[..., Path]) -> None:
    """The ranks continue when the line of rank 0 has been seen."""
    path = script(
        "def draws(pipe):",
        r"    if pc.rank() == 0: sys.stderr.write('\r 3/40\r 7/40'); sys.stderr.flush(); open(pipe).read()",
        r"    pc.barrier(); print('\nend' if pc.rank() == 0 else 'end', file=sys.stderr)",
        "if __name__ == '__main__': print('results', pc.run(draws, sys.argv[1], n=2))",
    )
    pipe = path.with_name("pipe")
    os.mkfifo(pipe)
    with on_a_terminal(sys.executable, str(path), str(pipe)) as (process, terminal):
        assert b"[0]  7/40" in read_until(terminal, b"7/40")
        pipe.write_text("go on")
        read_until(terminal, b"[0]  7/40\r\n", b"[0] end", b"[1] end", b"results [None, None]")
        assert process.wait(DEADLINE_S) == 0


def test_bars_of_a_rank_below_each_other_are_drawn_over_on_a_terminal(script: Callable[..., Path]) -> None:
    """tqdm draws them so. The rank continues when they have been seen."""
    path = script(
        "def draws(pipe):",
        "    def shows(*texts): [(sys.stderr.write(text), sys.stderr.flush()) for text in texts]",
        r"    for n in range(9): shows(f'\r outer {n}', '\n', f'\r inner {n}', '\x1b[A')",
        "    open(pipe).read()",
        "if __name__ == '__main__': pc.run(draws, sys.argv[1], n=1)",
    )
    pipe = path.with_name("pipe")
    os.mkfifo(pipe)
    with on_a_terminal(sys.executable, str(path), str(pipe)) as (process, terminal):
        text = read_until(terminal, b"inner 8")
        pipe.write_text("go on")
        text += read_to_end(terminal)
        assert process.wait(DEADLINE_S) == 0
    assert rows_of(text) == ["[0] outer 8", "[0] inner 8"]


def test_a_program_started_as_a_module_finds_the_modules_beside_it(script: Callable[..., Path]) -> None:
    script("word = 'found'", name="helper.py")
    program = script(
        "from .helper import word",
        "def f(): return word",
        "if __name__ == '__main__': print(pc.run(f, n=1))",
        name="program.py",
    )
    package = program.parent
    done = executed("-m", f"{package.name}.program", env={"PYTHONPATH": str(package.parent)})
    assert done.stdout == "['found']\n", done.stderr


# The end of the parent

WAITS = (
    "def waits():",
    "    print('ready', os.getpid(), subprocess.Popen(['sleep', '1000']).pid)",
    "    threading.Event().wait()",
    "if __name__ == '__main__': pc.run(waits, n=2)",
)


@contextlib.contextmanager
def waiting(path: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """Yields the program once both ranks have printed their pids: output is immediate."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, path], stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process, [pid for _ in range(2) for pid in pids_in(process.stdout)]
        finally:
            process.kill()


def pids_in(pipe: IO[str] | None) -> list[int]:
    assert pipe is not None
    found = re.fullmatch(r"\[[01]\] ready (\d+) (\d+)\n", pipe.readline())
    assert found
    return [int(found[1]), int(found[2])]


def wait_until_gone(pids: list[int]) -> None:
    """Returns when every process is dead. A zombie counts, because its new parent reaps it."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            fd = os.pidfd_open(pid)
            try:
                assert select.select([fd], [], [], DEADLINE_S)[0], f"still alive: {pid}"
            finally:
                os.close(fd)


def test_ctrl_c_ends_all_ranks(script: Callable[..., Path]) -> None:
    with waiting(script(*WAITS)) as (process, pids):
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == -signal.SIGINT
        assert errors.splitlines()[-1] == "KeyboardInterrupt"
        wait_until_gone(pids)


def test_a_killed_parent_leaves_no_process(script: Callable[..., Path]) -> None:
    with waiting(script(*WAITS)) as (process, pids):
        process.kill()
        wait_until_gone(pids)
