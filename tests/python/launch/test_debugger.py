"""Python's debugger in a rank: it gets what is typed at the launcher's terminal.

The other ranks wait.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from terminals import on_a_terminal, read_until
from test_launch import DEADLINE_S, command, program, run

import pycollective as pc
from pycollective import testing
from pycollective.launching.screen.live_line import LiveLine

pytestmark = pytest.mark.timeout(90)
__all__ = ["program"]  # a fixture
INIT = "import pycollective as pc; pc.init(timeout=60)"
SUM = "print('sum', pc.allreduce(1), flush=True); pc.shutdown()"


def answered(terminal: int, prompt: str, answer: str) -> bytes:
    text = read_until(terminal, prompt.encode())
    os.write(terminal, f"{answer}\n".encode())
    return text


def test_breakpoint_stops_one_rank_at_the_launchers_terminal(program: Callable[..., str]) -> None:
    script = program(INIT, "value = 6", "if rank == 1: breakpoint()", "value = 7", SUM)
    with on_a_terminal(*command("-n", "2", "--no-banner", script)) as (process, terminal):
        answered(terminal, "[1] (Pdb) ", "p value * 7")
        read_until(terminal, b"42", b"[1] (Pdb) ")
        os.write(terminal, b"continue\n")
        read_until(terminal, b"sum 2")
        assert process.wait(DEADLINE_S) == 0


def test_ranks_that_stop_at_the_same_time_are_answered_one_after_another(program: Callable[..., str]) -> None:
    script = program("value = rank + 40", "breakpoint()", "print('went on', flush=True)")
    with on_a_terminal(*command("-n", "2", "--no-banner", script)) as (process, terminal):
        first = read_until(terminal, b"(Pdb) ", b"waits for the rank that has the terminal")
        rank = 0 if b"[0] (Pdb)" in first else 1
        os.write(terminal, b"p value\n")
        read_until(terminal, b"\n%d" % (rank + 40), b"(Pdb) ")
        os.write(terminal, b"continue\n")
        answered(terminal, f"[{1 - rank}] (Pdb) ", "p value")
        answered(terminal, f"{41 - rank}", "continue")
        read_until(terminal, b"went on")
        assert process.wait(DEADLINE_S) == 0


@pytest.mark.parametrize("command_", ["continue", "next", "step"])
def test_the_others_wait_until_the_rank_that_stopped_goes_on(
    program: Callable[..., str], command_: str
) -> None:
    """The sum of all ranks follows what was typed, and a step stops at the caller's next line."""
    script = program(INIT, "pc.debug.breakpoint(rank=1)", "value = 42", SUM)
    with on_a_terminal(*command("-n", "3", "--no-banner", script)) as (process, terminal):
        before = answered(terminal, "[1] (Pdb) ", command_)
        assert b"sum" not in before
        assert b"pc.debug.breakpoint(rank=1)" in before  # the current line
        if command_ != "continue":
            shown = answered(terminal, "[1] (Pdb) ", "continue")
            assert b"-> value = 42" in shown
        read_until(terminal, b"sum 3")
        assert process.wait(DEADLINE_S) == 0


def test_the_unfinished_line_of_another_rank_gives_way_to_the_debugger() -> None:
    ours, theirs = os.openpty()
    line = LiveLine(fd=theirs)
    line.update(0, "out", b"[0] ", b"50 %")
    assert line.redrawn() == b"[0] 50 %"
    with open(os.ttyname(theirs), "rb") as debugger:
        fcntl.flock(debugger, fcntl.LOCK_EX)
        line.update(0, "out", b"[0] ", b"60 %")
        assert line.redrawn() == b""
        assert line.around(b"[0] whole\n") == b"[0] whole\n"  # and the prompt stays
        fcntl.flock(debugger, fcntl.LOCK_UN)
    assert line.redrawn() == b"[0] 60 %"
    os.close(ours)
    os.close(theirs)


def test_many_breakpoints_take_no_more_descriptors_than_one(program: Callable[..., str]) -> None:
    script = program(
        "held = []",
        "for i in range(3): breakpoint(); held.append(len(os.listdir('/proc/self/fd')))",
        "print('more' if len(set(held)) > 1 else 'no more', flush=True)",
    )
    with on_a_terminal(*command("-n", "1", "--no-banner", script)) as (process, terminal):
        for _ in range(3):
            answered(terminal, "[0] (Pdb) ", "continue")
        assert b"no more" in read_until(terminal, b"more")
        assert process.wait(DEADLINE_S) == 0


def test_quit_ends_the_world_with_that_rank_as_the_root_cause(program: Callable[..., str]) -> None:
    with on_a_terminal(*command("-n", "2", "--no-banner", program(INIT, "pc.debug.breakpoint(0)"))) as (
        process,
        terminal,
    ):
        answered(terminal, "[0] (Pdb) ", "quit")
        read_until(terminal, b"rank 0 failed first", b"BdbQuit")
        assert process.wait(DEADLINE_S) == 1


def test_without_a_terminal_the_error_names_the_ways_that_work(program: Callable[..., str]) -> None:
    done = run("-n", "2", program("if rank == 1: breakpoint()"))
    assert done.returncode == 1
    assert "breakpoint: rank 1 has no terminal" in done.stderr
    assert "`--stdin 1`" in done.stderr


def test_answers_may_come_from_a_pipe(program: Callable[..., str]) -> None:
    done = subprocess.run(
        command("-n", "2", "--stdin", "1", program("if rank == 1: breakpoint()", "value = 42")),
        input="p 6 * 7\ncontinue\n", capture_output=True, text=True, timeout=DEADLINE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "[1] (Pdb) 42" in done.stdout


def test_a_python_that_is_named_as_a_command_stops_too() -> None:
    with on_a_terminal(
        *command("-n", "1", "--no-banner", sys.executable, "-c", "breakpoint(); value = 42")
    ) as (process, terminal):
        answered(terminal, "[0] (Pdb) ", "continue")
        assert process.wait(DEADLINE_S) == 0


def test_the_users_own_debugger_stays(program: Callable[..., str]) -> None:
    done = run("-n", "1", program("breakpoint(); print('went on')"), env={"PYTHONBREAKPOINT": "0"})
    assert (done.returncode, done.stdout) == (0, "[0] went on\n")


def test_a_rank_of_pc_run_stops_at_the_terminal_of_its_parent(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import pycollective as pc\n"
        "def stops():\n"
        "    value = 42\n"
        "    pc.debug.breakpoint(rank=1)\n"
        "    return pc.allreduce(value)\n"
        "if __name__ == '__main__': print('results', pc.run(stops, n=2))\n"
    )
    ours, theirs = os.openpty()
    with subprocess.Popen([sys.executable, script], stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        answered(ours, "[1] (Pdb) ", "p value")
        answered(ours, "[1] (Pdb) ", "continue")
        read_until(ours, b"results [84, 84]")
        assert process.wait(DEADLINE_S) == 0
    os.close(ours)


def asks_for_rank_2() -> None:
    with pytest.raises(pc.InvalidArgument, match="the world has ranks 0 to 1"):
        pc.debug.breakpoint(rank=2)


def test_a_rank_that_is_not_there_cannot_stop() -> None:
    testing.run(asks_for_rank_2, 2)
