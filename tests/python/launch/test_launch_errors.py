"""A world that fails prints one root cause: equal errors once, the first cause last.

Errors of other ranks are shortened.
"""

from __future__ import annotations

import asyncio
import math
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from test_launch import AWAIT_USR1, BLOCK_USR1, DEADLINE_S, WAIT, command, run

import pycollective as pc
from pycollective.launching import child
from pycollective.launching.absent_ranks import groups_with_others
from pycollective.launching.failures import memory_cgroup
from pycollective.launching.failures.root_cause import is_consequence
from pycollective.launching.job_ranks import JobRank, JobRanks
from pycollective.launching.screen import Screen, tracebacks
from pycollective.launching.screen.paddle_signal import without_block
from pycollective.launching.screen.tracebacks import Tracebacks, spans
from pycollective.launching.worker import Outcome

pytestmark = pytest.mark.timeout(90)
HEAD = "Traceback (most recent call last):"
PEER_FAILURE = "pycollective.errors.PeerFailure: barrier: rank 1 failed"
# Each rank continues when all have reached this point: the other ranks write a byte to rank 0,
# which then writes one to each of them.
ALL_HERE = (
    "names = [sys.argv[0] + '.come', sys.argv[0] + '.go']",
    "come, go = (os.open(name, os.O_RDWR) for name in names)",  # opens without waiting
    "others = int(os.environ['WORLD_SIZE']) - 1",
    "if rank == 0: [os.read(come, 1) for _ in range(others)]; os.write(go, bytes(others))",
    "else: os.write(come, b' '); os.read(go, 1)",
)
# `pycollective run` without any decision that depends on elapsed time.
PATIENT = """
import sys
from pycollective.cli import main
from pycollective.launching import local_ranks
from pycollective.launching.screen import Screen, tracebacks
tracebacks.HOLD_S = tracebacks.VICTIM_HOLD_S = tracebacks.LINES_HOLD_S = local_ranks.SETTLE_S = 1e6
sys.exit(main())
"""


@pytest.fixture
def program(tmp_path: Path) -> Callable[..., str]:
    """The fixture of test_launch, with what ALL_HERE needs."""
    for name in ("come", "go", "wrote", "end"):
        os.mkfifo(tmp_path / f"program.py.{name}")

    def write(*lines: str) -> str:
        path = tmp_path / "program.py"
        path.write_text(
            "\n".join(["import os, signal, subprocess, sys", "rank = int(os.environ['RANK'])", *lines])
        )
        return str(path)

    return write


def merged(*words: str) -> str:
    """Returns both streams as a user reads them."""
    done = subprocess.run(
        [sys.executable, "-c", PATIENT, *command(*words)[3:]],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode != 0
    return done.stdout


@pytest.mark.parametrize("prefix", ["", "[rank{rank}]: "])
def test_ranks_that_raise_the_same_print_one_traceback(program: Callable[..., str], prefix: str) -> None:
    """PyTorch puts a prefix of its own before the lines."""
    script = program(
        *ALL_HERE,
        "import traceback",
        "try: raise ValueError('no such data set')",
        "except ValueError: lines = traceback.format_exc().splitlines()",
        f"for line in lines: print(f'{prefix}' + line, file=sys.stderr)",
        "os._exit(1)",
    )
    said = merged("-n", "3", script)
    assert said.count(HEAD) == 1, said
    assert said.count("ValueError: no such data set") == 1
    assert said.splitlines()[-1].endswith("ValueError: no such data set")


@pytest.mark.parametrize("last", ["raise ValueError('boom')", "eval('foo(')", "import no_such_module"])
def test_errors_of_a_whole_program_are_shown_once(program: Callable[..., str], last: str) -> None:
    assert merged("-n", "2", program(*ALL_HERE, last)).count(HEAD) == 1


# Waits until all have written, because the launcher stops the other ranks when the first has ended.
ALL_WROTE = tuple(line.replace(".come", ".wrote").replace(".go", ".end") for line in ALL_HERE)


@pytest.mark.parametrize("text", ["no data set in /data", "no data set\nin /data on rank {rank}"])
def test_ranks_that_exit_with_the_same_words_show_them_once(program: Callable[..., str], text: str) -> None:
    ends = ("import atexit", "def end():", *(f"    {line}" for line in ALL_WROTE), "atexit.register(end)")
    said = merged("-n", "8", program(*ALL_HERE, *ends, f"sys.exit(f{text!r})"))
    assert said.count("no data set") == 1, said
    assert said.count("in /data") == 1, said
    assert "wrote the same. Its last lines:\nno data set" in said  # no other rank remains to be stopped


def test_lines_that_may_be_the_last_come_before_what_the_rank_prints_next(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async def shows() -> None:
        screen = Screen(ranks=[0, 1], prefix=True, on_closed=list, on_failed=print)
        for rank in (0, 1):
            screen.show(rank, "err", b"one\n")
        assert [*screen.tracebacks.recent] == [0, 1]
        await screen.show(0, "out", b"two\n")
        assert [*screen.tracebacks.recent] == [1]
        screen.close()

    asyncio.run(shows())
    assert capfd.readouterr() == ("[0] two\n", "[0] one\n")


def test_a_syntax_error_is_shown_once(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text("foo(\n")
    assert merged("-n", "2", str(wrong)).count("was never closed") == 1


def test_a_script_that_is_not_there_starts_no_rank(tmp_path: Path) -> None:
    missing = tmp_path / "missing.py"
    done = run("-n", "2", str(missing))
    assert done.returncode == 2
    assert done.stderr.startswith(f"pycollective run: cannot start the ranks: there is no file {missing} in ")


def test_a_rank_that_only_reports_the_end_of_another_does_so_in_a_line(program: Callable[..., str]) -> None:
    victim = "pycollective.errors.PeerFailure: barrier on rank %d: rank 1 failed"
    script = program(
        *ALL_HERE,
        "if rank == 1: raise KeyError('the cause')",
        f"print('{HEAD}\\n  File \"x.py\", line 1, in <module>\\n{victim}' % rank, file=sys.stderr)",
        "sys.exit(1)",
    )
    said = merged("-n", "3", script)
    assert said.count(HEAD) == 1, said
    assert said.count("PeerFailure") <= 1
    assert said.splitlines()[-1] == "KeyError: 'the cause'"


def test_different_errors_are_all_shown(program: Callable[..., str]) -> None:
    said = merged("-n", "2", program(*ALL_HERE, "raise ValueError(f'file {rank + 5}')"))
    assert said.splitlines()[-1].startswith("ValueError: file ")


def test_an_error_that_a_rank_survives_is_shown_while_it_lives(program: Callable[..., str]) -> None:
    """The rank ends when its output was seen."""
    script = program(f"print('{HEAD}\\nValueError: logged', file=sys.stderr)", WAIT)
    with subprocess.Popen(
        command("-n", "1", script), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == f"[0] {HEAD}\n"
        assert process.stderr.readline() == "[0] ValueError: logged\n"
        process.terminate()
        assert process.stderr.read() == ""
        assert process.wait(DEADLINE_S) == 143


def test_a_cause_that_ends_slowly_is_shown_before_its_victims(program: Callable[..., str]) -> None:
    """The rank ends when its error was seen, after the time for which errors are held back."""
    script = program(
        BLOCK_USR1,
        *ALL_HERE,
        f"error = 'ValueError: the cause' if rank == 1 else '{PEER_FAILURE}'",
        rf"print('{HEAD}\n  in x.py\n' + error, file=sys.stderr)",
        AWAIT_USR1,
        "os._exit(1)",
    )
    with subprocess.Popen(
        command("-n", "3", script), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        shown = [process.stderr.readline() for _ in range(3)]
        assert shown[2] == "[1] ValueError: the cause\n"
        process.send_signal(signal.SIGUSR1)
        rest = process.stderr.read()
        assert process.wait(DEADLINE_S) == 1
    assert HEAD not in rest
    assert rest.splitlines()[-1] == "ValueError: the cause"


def test_equal_errors_that_ranks_survive_are_folded_too() -> None:
    screen = Tracebacks()
    lines = [HEAD.encode(), b'  File "x.py", line 1, in <module>', b"ValueError: object at 0x7f01"]
    assert screen.take(0, [b"before", *lines]) == [b"before"]
    assert screen.take(2, lines[:1]) == []
    assert screen.take(2, [*lines[1:2], b"ValueError: object at 0xbeef"]) == []
    assert screen.release(0) == lines
    assert screen.release(2) == []
    assert screen.reported() == [b"[2] the same error as rank 0"]
    assert screen.reported() == []
    ending = screen.end(2)
    assert ending.shown
    assert ending.alike == [0]


def test_errors_of_ranks_that_were_stopped_while_they_wrote_are_left_out() -> None:
    screen = Tracebacks()
    lines = [HEAD.encode(), b'  File "x.py", line 1, in <module>', b"ValueError: boom"]
    screen.take(0, lines[:2])
    screen.take(1, lines)
    screen.take(2, [HEAD.encode(), b'  File "other.py", line 7, in <module>'])
    ending = screen.end(1)
    assert (ending.lines, ending.alike, ending.whole) == ([], [0], lines)


def test_what_ranks_say_of_one_call_that_failed_on_all_is_one_error(program: Callable[..., str]) -> None:
    """Each rank reports it from its own side, with its own times and dtypes."""
    script = program(
        "import numpy as np, pycollective as pc",
        "pc.init(timeout=60); pc.barrier()",
        "pc.allreduce(np.zeros(3, 'f8' if rank == 1 else 'f4'))",
    )
    said = merged("-n", "3", script)
    assert said.count(HEAD) == 1, said
    assert "rank 1" in said.split("CollectiveMismatch: ")[1]


def paddles_block(sender: int) -> list[bytes]:
    text = f"""

--------------------------------------
C++ Traceback (most recent call last):
--------------------------------------
No stack trace in paddle, may be caused by external reasons.

----------------------
Error Message Summary:
----------------------
FatalError: `Termination signal` is detected by the operating system.
  [TimeInfo: *** Aborted at 1795816945 (unix time) try "date -d @1795816945" if you are using GNU date ***]
  [SignalInfo: *** SIGTERM (@0x3ab) received by PID 979 (TID 0x7f6b86fd8b80) from PID {sender} ***]
"""
    return text.encode().split(b"\n")


def test_what_paddle_says_of_our_own_signal_is_left_out_and_of_another_one_is_not() -> None:
    mine, other = paddles_block(os.getpid()), paddles_block(os.getpid() + 1)
    assert without_block([b"epoch 1", *mine, b"saved"]) == [b"epoch 1", b"saved"]
    assert without_block(mine[3:]) == []  # the lines before have been shown
    assert without_block(other) == other
    crash = [line.replace(b"SIGTERM", b"SIGSEGV") for line in mine]
    assert without_block(crash) == crash
    # the end of the block, which names the sender, is still missing
    assert without_block(mine[:-2]) == mine[:-2]


def test_what_a_stopped_rank_prints_is_shown_but_for_that_block(program: Callable[..., str]) -> None:
    block = b"\n".join(paddles_block(0)).decode().replace("from PID 0", "from PID %d")
    script = program(
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})",
        *ALL_HERE,
        "if rank == 1:",
        "    sys.exit('the cause')",
        "sent = signal.sigwaitinfo({signal.SIGTERM}).si_pid",
        f"sys.stdout.write('saved\\n' + {block!r} % sent + {block!r} % 1)",
        "sys.stdout.flush()",
    )
    done = run("-n", "2", script)
    assert "the cause" in done.stderr
    assert done.stdout.count("Termination signal") == 1
    assert "[0] saved" in done.stdout
    assert "from PID 1 " in done.stdout


def test_a_long_output_is_not_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracebacks, "LONGEST", 3)
    screen = Tracebacks()
    assert screen.take(0, [b"usage: x", b"y", b"z"]) == []
    assert screen.take(0, [b"end"]) == [b"usage: x", b"y", b"z", b"end"]
    assert not screen.held


def test_long_lines_cost_little_and_are_compared_to_their_ends() -> None:
    """A line of dots, which slow tests print, once took minutes."""
    dots, ends = b"." * 1_000_000, b"1" * 1_000_000
    began = time.process_time()
    kinds = {tracebacks.identity(0, [HEAD.encode(), line]) for line in (dots, ends, ends + b"x", dots + b"x")}
    assert len(kinds) == 4
    assert time.process_time() - began < 5  # seconds of the processor, whatever else runs


def test_times_are_no_difference() -> None:
    alike = {
        tracebacks.identity(0, [b"after %s s" % each]) for each in (b"3", b"0.25", b"1.5e-05", b"10.125")
    }
    assert len(alike) == 1


def test_ranks_are_named_in_short() -> None:
    assert spans([0]) == "0"
    assert spans([4, 0, 1, 2, 6, 7]) == "0-2, 4, 6-7"


def test_ctrl_c_shows_equal_tracebacks_once(program: Callable[..., str]) -> None:
    script = program(
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})",
        "print('ready', flush=True)",
        "signal.sigwait({signal.SIGINT})",
        "raise KeyboardInterrupt",
    )
    with subprocess.Popen(
        command("-n", "3", script), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for _ in range(3):
            assert "ready" in process.stdout.readline()
        process.send_signal(2)
        said = process.stderr.read()
        assert process.wait(DEADLINE_S) == 130
    assert said.count(HEAD) == 1


def test_an_exit_code_of_the_programs_own_is_reported_as_that(program: Callable[..., str]) -> None:
    done = run("-n", "2", program("if rank == 1: sys.exit(3)", WAIT))
    assert done.returncode == 3
    assert "rank 1 failed first (exit code 3, as after sys.exit(3))" in done.stderr
    done = run("-n", "1", program("print('no data, giving up', file=sys.stderr); sys.exit(3)"))
    assert "rank 0 failed first (exit code 3, as after sys.exit(3))" in done.stderr
    done = run(
        "-n", "1", program("print('KeyError, as a hook of its own shows it', file=sys.stderr); os._exit(1)")
    )
    assert "rank 0 failed first (exit code 1). " in done.stderr
    done = run("-n", "1", "sh", "-c", "exit 3")
    assert "rank 0 failed first (exit code 3). " in done.stderr


@pytest.mark.parametrize("statement", ["input()", "import pdb; pdb.set_trace()"])
def test_a_rank_that_wants_input_raises_how_it_gets_some(program: Callable[..., str], statement: str) -> None:
    done = run(
        "-n", "2", program(f"if rank == 1: {statement}", "rank = 0", "" if "pdb" in statement else WAIT)
    )
    assert done.returncode == 1
    assert "If it wanted input: --stdin 1 gives it ours" in done.stderr


PEER_LEFT = (
    b"Traceback (most recent call last):",
    b"pycollective.errors.CollectiveMismatch: barrier on rank 0: rank 1 made shutdown instead of barrier",
)


@pytest.mark.parametrize(
    "lines", [PEER_LEFT, [b"[rank0]: pycollective.errors.PeerFailure: rank 1 failed", b"[rank0]: more"]]
)
def test_a_report_of_a_rank_that_left_is_a_consequence(lines: Sequence[bytes]) -> None:
    assert is_consequence(lines)


@pytest.mark.parametrize(
    ("line", "folder", "file", "limit"),
    [
        ("0::/job/7", "job/7", "memory.events", "memory.max"),
        ("0::/", "", "memory.events", "memory.max"),  # a container's own view
        ("0::/not/visible", "", "memory.events", "memory.max"),
        ("4:cpu,memory:/job", "memory/job", "memory.oom_control", "memory.limit_in_bytes"),
    ],
)
def test_what_the_memory_cgroup_counts_is_found(
    tmp_path: Path, line: str, folder: str, file: str, limit: str
) -> None:
    group = tmp_path / "sys/fs/cgroup" / folder
    group.mkdir(parents=True)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(f"2:cpuset:/x\n{line}\n")
    (group / limit).write_text("2147483648\n")
    (group / file).write_text("max 7\noom_kill 1\n")
    before = memory_cgroup.read(tmp_path)
    assert before is not None
    assert before.events == {"max": 7, "oom_kill": 1}
    assert "the memory cgroup was not the reason" in memory_cgroup.hint(before, before)
    (group / file).write_text("max 9\noom_kill 3\n")
    hint = memory_cgroup.hint(before, memory_cgroup.read(tmp_path))
    assert "limit 2 GiB" in hint
    assert "max 9, oom_kill 3; 2 of oom_kill since the start" in hint


def test_without_a_memory_cgroup_the_hint_names_dmesg(tmp_path: Path) -> None:
    assert memory_cgroup.read(tmp_path) is None
    assert "dmesg" in memory_cgroup.hint(None, None)


def test_a_killed_rank_comes_with_the_counts(program: Callable[..., str]) -> None:
    done = run("-n", "2", program("if rank == 1: os.kill(os.getpid(), signal.SIGKILL)", WAIT))
    assert done.returncode == 137
    report = done.stderr.split("pycollective run: ")[1]
    assert "signal SIGKILL" in report
    assert "oom_kill" in report or "dmesg" in report
    assert sys.executable not in report


@pytest.mark.parametrize("absent", [0, 2])
def test_a_rank_that_ends_well_before_init_is_reported_to_those_that_wait_there(
    program: Callable[..., str], absent: int
) -> None:
    """Their own deadline is far away."""
    script = program(f"if rank == {absent}: sys.exit()", "import pycollective as pc", "pc.init(timeout=300)")
    done = run("-n", "3", script)
    assert done.returncode == 1
    assert done.stderr.count(HEAD) == 1
    last = done.stderr.splitlines()[-1]
    assert f"rank {absent} has ended (exit code 0) without joining this world" in last


def leaves_out_init(absent: int) -> None:
    if int(os.environ["RANK"]) != absent:
        pc.init(timeout=300)


def test_a_function_that_returns_before_init_is_reported_to_those_that_wait_there() -> None:
    with pytest.raises(pc.CollectiveError, match="rank 1 has ended .* without joining this world"):
        pc.run(leaves_out_init, 1, n=3, init=False)


def joins_one_world_less(absent: int) -> None:
    pc.init(timeout=60)
    pc.shutdown()
    leaves_out_init(absent)


def test_a_rank_that_ends_between_two_worlds_is_not_said_to_have_joined_none() -> None:
    with pytest.raises(pc.CollectiveError, match="rank 1 has ended .* without joining this world"):
        pc.run(joins_one_world_less, 1, n=2, init=False)


def test_ranks_are_served_while_the_store_that_is_informed_of_absent_ones_is_slow() -> None:
    class SlowStore:
        asked, answered = threading.Event(), threading.Event()

        def _report_absent(self, ranks: Sequence[int], why: str) -> None:
            assert list(ranks) == [0]
            self.asked.set()
            self.answered.wait(DEADLINE_S)

    store, pipe = SlowStore(), subprocess.PIPE
    ranks = JobRanks(lambda *_: None, store)  # type: ignore[arg-type]  # it is asked for nothing else
    begun = []
    try:
        for rank, words in enumerate((["true"], ["cat"])):
            begun.append(
                child.start(
                    words, rank=rank, env=os.environ, key_fd=None, stdin=pipe, stdout=pipe, stderr=pipe
                )
            )
            reply = tempfile.TemporaryFile()  # noqa: SIM115  # it is JobRank's
            pickle.dump(Outcome(), reply)
            ranks.add(JobRank(begun[-1], reply))
        first = ranks.next_end(math.inf)
        assert first is not None
        assert first.rank == 0
        stdin = begun[1].process.stdin
        assert stdin is not None
        threading.Thread(target=lambda: store.asked.wait(DEADLINE_S) and stdin.close()).start()
        second = ranks.next_end(math.inf)
        assert second is not None
        assert second.rank == 1
        assert store.asked.is_set()
    finally:
        store.answered.set()
        ranks.close()
        for each in begun:
            each.reap()
            assert each.process.stdin is not None
            each.process.stdin.close()


def test_a_process_may_call_itself_anything() -> None:
    """This includes names that are no text, while the launcher looks up the processes."""
    name = Path("/proc/self/comm")
    before = name.read_bytes()
    name.write_bytes(b"\xff) S 1 \xfe")
    try:
        groups = groups_with_others()
    finally:
        name.write_bytes(before)
    assert os.getpgrp() in groups or os.getpgrp() == os.getpid()


def test_a_shell_that_leaves_its_rank_behind_is_no_absent_rank(
    program: Callable[..., str], tmp_path: Path
) -> None:
    """The shell ends at once, and the process that it has started joins the world."""
    os.mkfifo(tmp_path / "ended")
    script = program(
        "import pycollective as pc", "pc.init(timeout=60); print(pc.allreduce(1)); pc.shutdown()"
    )
    shell = f"if [ $RANK = 0 ]; then ({sys.executable} {script}; : > {tmp_path}/ended) & else {sys.executable} {script}"
    done = run("-n", "2", "sh", "-c", f"{shell}; read line < {tmp_path}/ended; fi")
    assert sorted(done.stdout.splitlines()) == ["[0] 2", "[1] 2"], done.stderr
