"""The output of the ranks: how and where `pycollective run` shows it, and what if it cannot."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

import pytest
from terminals import on_a_terminal, read_to_end, read_until, rows_of
from test_launch import (
    AWAIT_USR1,
    BLOCK_USR1,
    DEADLINE_S,
    READY,
    SAY_HI,
    WAIT,
    command,
    pids_of,
    program,
    run,
    started,
    wait_until_gone,
)

from pycollective.launching.screen.cells import fitted
from pycollective.launching.screen.live_line import LiveLine

pytestmark = pytest.mark.timeout(90)
__all__ = ["program"]  # a fixture


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


def test_lines_stay_whole_where_both_streams_are_one_pipe(program: Callable[..., str]) -> None:
    script = program(
        "from threading import Thread",
        "def prints(fd, letter): [os.write(fd, letter * 200_000 + b'\\n') for _ in range(20)]",
        "Thread(target=prints, args=(1, b'x')).start()",
        "Thread(target=prints, args=(2, b'y')).start()",
    )
    done = subprocess.run(
        command("-n", "1", script), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=DEADLINE_S
    )
    assert done.returncode == 0
    wanted = [b"[0] " + letter * 200_000 for letter in (b"x", b"y") for _ in range(20)]
    assert sorted(done.stdout.splitlines()) == wanted


def test_a_progress_bar_shows_its_last_state(program: Callable[..., str]) -> None:
    done = run("-n", "1", program(r"sys.stdout.write('10 %\r50 %\r100 %\n')"))
    assert done.stdout == "[0] 100 %\n"


def test_without_a_prefix_every_byte_passes_as_it_is(program: Callable[..., str]) -> None:
    script = program(
        "printed = bytes(range(256)) + b'x' * 3_000_000 + b'10 %\\r50 %\\r\\n\\nend'",
        "sys.stdout.buffer.write(printed)",
        "sys.stderr.buffer.write(printed[::-1])",
    )
    done = subprocess.run(command("-n", "1", "--no-prefix", script), capture_output=True, timeout=DEADLINE_S)
    printed = bytes(range(256)) + b"x" * 3_000_000 + b"10 %\r50 %\r\n\nend"
    assert done.returncode == 0
    assert done.stdout == printed
    assert done.stderr == printed[::-1]


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_no_obstacle(
    program: Callable[..., str], tmp_path: Path, closed: str
) -> None:
    script = program(
        "print(len(os.pread(int(os.environ['PYCOLLECTIVE_KEY_FD']), 100, 0)))",
        "print('err', file=sys.stderr)",
    )
    words = command("-n", "2", "--log-dir", str(tmp_path), script)
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *words], capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert done.returncode == 0, done.stderr
    assert "2>&-" in closed or sorted(done.stderr.splitlines()) == ["[0] err", "[1] err"]
    assert [(tmp_path / f"rank{r}.out").read_text() for r in range(2)] == ["32\n"] * 2


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


@pytest.mark.parametrize("statements", [("print('x')", WAIT), ("sys.stdout.write('no newline')",)])
def test_a_full_disk_under_the_screen_ends_the_world(
    program: Callable[..., str], statements: Sequence[str]
) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command("-n", "1", program(*statements)),
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=DEADLINE_S,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == (
        "pycollective run: cannot write what the ranks print: No space left on device; the ranks were stopped\n"
    )


def wait_until_full(pipe: int) -> None:
    """Returns when the pipe that we read is full."""
    end = time.monotonic() + DEADLINE_S
    other_end = os.open(f"/proc/self/fd/{pipe}", os.O_WRONLY | os.O_NONBLOCK)
    try:
        while select.select([], [other_end], [], 0)[1]:
            assert time.monotonic() < end
    finally:
        os.close(other_end)


def test_a_screen_that_does_not_block_gets_all_lines_too(program: Callable[..., str]) -> None:
    """A process that shares a terminal or pipe with us, such as ssh or node, can set this."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    words = command("-n", "1", "--no-prefix", program("for i in range(10): print(str(i) * 900_000)"))
    with subprocess.Popen(words, stdout=writing) as process, open(reading) as screen:
        os.close(writing)
        wait_until_full(reading)
        assert screen.read().splitlines() == [str(i) * 900_000 for i in range(10)]
        assert process.wait(DEADLINE_S) == 0


def test_ctrl_c_works_while_the_reader_of_the_output_pauses(program: Callable[..., str]) -> None:
    with started("-n", "2", program(READY, "while True: print('x' * 1000)")) as process:
        pids = pids_of(process, 1)
        assert process.stdout is not None
        wait_until_full(process.stdout.fileno())
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 130  # without any further read from the pipe
        wait_until_gone(pids)


def test_ctrl_c_works_though_an_error_is_held_back_for_the_same_pipe(program: Callable[..., str]) -> None:
    """`2>&1 | less`"""
    script = program(
        "signal.signal(signal.SIGINT, signal.SIG_DFL)",
        # more than a pipe takes
        "print('Traceback (most recent call last):\\n  ' + 'x' * 200_000, file=sys.stderr)",
        "sys.stderr.flush()",
        "while True: print('x' * 1000)",
    )
    words = [sys.executable, "-c", HOLDS_BACK_FOR_LONG, *command("-n", "1", script)[3:]]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        wait_until_full(process.stdout.fileno())
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 130  # without any read from the pipe


HOLDS_BACK_FOR_LONG = """
import sys
from pycollective import cli
from pycollective.launching import local_ranks
from pycollective.launching.screen import tracebacks
tracebacks.HOLD_S, tracebacks.LINES_HOLD_S, local_ranks.DRAIN_S = 1e6, 1e6, 0.1
sys.exit(cli.main())
"""
SAYS_WHEN_IT_WAITS = """
import asyncio, os, sys
from pycollective import cli
from pycollective.launching import local_ranks
wait = asyncio.wait
async def reporting(tasks, *, timeout):
    done, pending = await wait(tasks, timeout=timeout)
    if pending:
        os.write(2, b"waited in vain\\n")
    return done, pending
asyncio.wait, local_ranks.DRAIN_S = reporting, 0.01
sys.exit(cli.main())
"""


def test_a_reader_that_pauses_longer_than_the_ranks_live_gets_all_lines(program: Callable[..., str]) -> None:
    script = program("for i in range(20_000): print(rank, i)", "print('last', end='')")
    words = [sys.executable, "-c", SAYS_WHEN_IT_WAITS, *command("-n", "2", script)[3:]]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stderr is not None
        for _ in range(3):  # it keeps trying
            assert process.stderr.readline() == "waited in vain\n"
        stdout, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    wanted = [f"[{r}] {r} {i}" for r in range(2) for i in range(20_000)] + ["[0] last", "[1] last"]
    assert sorted(stdout.splitlines()) == sorted(wanted)


@pytest.mark.parametrize("options", [(), ("--no-prefix",)])
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("unfinished", [r"\r 7/40", r"7/40\r", "name? 7/40", r"\x1b[2K\r\x1b[36m7/40"])
def test_a_terminal_shows_unfinished_lines(
    program: Callable[..., str], unfinished: str, ranks: int, options: Sequence[str]
) -> None:
    """The rank continues when its line has been seen."""
    script = program(
        BLOCK_USR1,
        "if rank > 0: print('whole', flush=True)",
        f"if rank == 0: sys.stderr.write('{unfinished}'); sys.stderr.flush(); {AWAIT_USR1}",
        "if rank == 0: print('\\nfinished', file=sys.stderr)",
    )
    with on_a_terminal(*command("-n", str(ranks), *options, "--no-banner", script)) as (process, terminal):
        read_until(terminal, b"7/40", *[b"whole"] * (ranks - 1))  # all ranks have started
        process.send_signal(signal.SIGUSR1)
        text = read_until(terminal, b"finished")
        assert process.wait(DEADLINE_S) == 0
    assert b"7/40" in text or "--no-prefix" in options


def test_progress_moves_on_the_terminal_of_the_launcher(program: Callable[..., str]) -> None:
    """The rank continues when its line has been seen."""
    script = program(
        BLOCK_USR1,
        "import pycollective as pc; from pycollective.training import console; console.REDRAW_S = 0",
        "for item in pc.progress('ab', description='epoch'):",
        f"    if item == 'b': {AWAIT_USR1}",
    )
    with on_a_terminal(*command("-n", "1", "--no-banner", script)) as (process, terminal):
        shown = read_until(terminal, b"epoch 1/2")
        process.send_signal(signal.SIGUSR1)
        read_until(terminal, b"epoch 2/2")
        assert process.wait(DEADLINE_S) == 0
    assert b"\n" not in shown
    done = run("-n", "1", program("import pycollective as pc; list(pc.progress('ab'))"))
    assert done.stderr.count("2/2") == 1


def test_whole_lines_take_the_place_of_the_unfinished_one_which_comes_below_them() -> None:
    line = LiveLine(fd=-1)
    line.update(1, "err", b"[1] ", b"\r10 %\r20 %")
    assert line.redrawn() == b"[1] 20 %"
    assert line.redrawn() == b""
    assert line.around(b"[0] whole\n") == b"\r\x1b[K[0] whole\n[1] 20 %"
    line.update(0, "out", b"[0] ", b"x" * 200)
    assert line.redrawn() == b"\r\x1b[K[0] " + b"x" * 75
    line.update(0, "out", b"[0] ", b"")
    line.update(1, "err", b"[1] ", b"")
    assert line.around(b"[1] end\n") == b"\r\x1b[K[1] end\n"
    assert line.redrawn() == b""


def test_lines_between_which_the_cursor_moves_are_drawn_over_together() -> None:
    line = LiveLine(fd=-1)
    line.update(1, "err", b"[1] ", b"outer 0\n\r inner 0\n    ")
    assert line.redrawn() == b"[1] outer 0\n[1]  inner 0"
    assert line.around(b"whole\n") == b"\r\x1b[K\x1b[A\x1b[Kwhole\n[1] outer 0\n[1]  inner 0"
    line.update(1, "err", b"[1] ", b"outer 1")
    assert line.redrawn() == b"\r\x1b[K\x1b[A\x1b[K[1] outer 1"
    line.update(1, "err", b"[1] ", b"\n".join(b"%d" % number for number in range(100)))
    # the last of a terminal's 24 rows is for the output that follows
    assert line.redrawn().count(b"\n") == 22


# The output of tqdm with position=0 and position=1, and of rich with two tasks. They wait until it
# is seen.
NESTED = (
    "def shows(*texts): [(sys.stderr.write(text), sys.stderr.flush()) for text in texts]",
    "for outer in range(3):",
    "    shows(f'\\r outer {outer}')",
    "    for inner in range(9):",
    "        shows('\\n', f'\\r inner {inner}', '\\x1b[A')",
    f"    if outer == 1: {AWAIT_USR1}",
    "    shows('\\n', '\\r         \\r', '\\x1b[A')",
    "shows('\\r outer 3\\n')",
)
TASKS = (
    "sys.stderr.write('\\x1b[?25l' + 'first 0\\nsecond 0')",
    "for number in range(9):",
    "    sys.stderr.write(f'\\r\\x1b[2K\\x1b[1A\\x1b[2Kfirst {number}\\nsecond {number}')",
    "    sys.stderr.flush()",
    f"    if number == 5: {AWAIT_USR1}",
    "sys.stderr.write('\\n\\x1b[?25h')",
)
DRAWN = [(NESTED, b"inner 8", ["outer 3"]), (TASKS, b"second 5", ["first 8", "second 8"])]


@pytest.mark.parametrize(("statements", "seen", "left"), DRAWN)
def test_several_bars_of_a_rank_leave_as_many_lines_on_a_terminal(
    program: Callable[..., str], statements: Sequence[str], seen: bytes, left: Sequence[str]
) -> None:
    script = program(BLOCK_USR1, "print('up', flush=True)", *statements)
    with on_a_terminal(*command("-n", "2", "--no-banner", script)) as (process, terminal):
        text = read_until(terminal, b"up\r\n", b"up\r\n", seen)
        while text.count(b"up\r\n") < 2:
            text += read_until(terminal, b"up\r\n")
        process.send_signal(signal.SIGUSR1)
        text += read_to_end(terminal)
        assert process.wait(DEADLINE_S) == 0
    assert sorted(rows_of(text)) == sorted(f"[{rank}] {row}" for rank in range(2) for row in ("up", *left))


@pytest.mark.parametrize(("statements", "left"), [(statements, left) for statements, _, left in DRAWN])
def test_several_bars_of_a_rank_leave_their_last_states_in_a_file(
    program: Callable[..., str], statements: Sequence[str], left: Sequence[str]
) -> None:
    script = program(*[line.replace(AWAIT_USR1, "pass") for line in statements])
    done = run("-n", "2", script)
    wanted = sorted(f"[{rank}] {row}" for rank in range(2) for row in left)
    assert sorted(" ".join(line.split()) for line in done.stderr.splitlines()) == wanted


def test_a_traceback_leaves_no_unfinished_line_behind(program: Callable[..., str]) -> None:
    """The part of its second line that arrived together with the first one is held back, too."""
    script = program(
        BLOCK_USR1,
        "os.write(2, b'before\\nTraceback (most recent call last):\\n  File')",
        AWAIT_USR1,
        "print('after', flush=True)",
        WAIT,
    )
    words = [sys.executable, "-c", HOLDS_BACK_FOR_LONG, *command("-n", "1", "--no-banner", script)[3:]]
    with on_a_terminal(*words) as (process, terminal):
        text = read_until(terminal, b"before")
        process.send_signal(signal.SIGUSR1)
        text += read_until(terminal, b"after")
    assert b"File" not in text


@pytest.mark.parametrize("end", ["print('after')", "sys.exit('last words')"])
def test_a_terminal_shows_lines_that_may_be_the_last(program: Callable[..., str], end: str) -> None:
    """The rank continues when they have been seen. Nothing else shows them meanwhile."""
    script = program(BLOCK_USR1, "print('before', file=sys.stderr)", AWAIT_USR1, end)
    words = [sys.executable, "-c", HOLDS_BACK_FOR_LONG, *command("-n", "1", "--no-banner", script)[3:]]
    with on_a_terminal(*words) as (process, terminal):
        text = read_until(terminal, b"before")
        process.send_signal(signal.SIGUSR1)
        text += read_to_end(terminal)
        process.wait(DEADLINE_S)
    left = rows_of(text)
    if "after" in end:
        assert left == ["[0] before", "[0] after"]
    else:
        assert left[0].startswith("pycollective run: rank 0 failed first")
        assert left[1:] == ["before", "last words"]


@pytest.mark.parametrize("options", [(), ("--no-prefix",)])
def test_a_last_line_without_an_end_stays_on_the_terminal(
    program: Callable[..., str], options: Sequence[str]
) -> None:
    script = program(
        BLOCK_USR1,
        "if rank == 0: sys.stderr.write('bar'); sys.stderr.flush(); " + AWAIT_USR1,
        "else: print('last', end='')",
    )
    with on_a_terminal(*command("-n", "2", *options, "--no-banner", script)) as (process, terminal):
        read_until(terminal, b"last\r\n", b"bar")
        process.send_signal(signal.SIGUSR1)
        assert process.wait(DEADLINE_S) == 0


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("abcdef", "abcd"),
        ("\u8fdb\u5ea6\u6761", "\u8fdb\u5ea6"),  # each takes two cells
        ("a\u8fdb\u5ea6\u6761", "a\u8fdb"),
        ("e\u0301" * 5, "e\u0301" * 4),
        ("\x1b[31mabcdef", "\x1b[31mabcd\x1b[0m"),
        ("\x1b[31mab\x1b[0mcdef", "\x1b[31mab\x1b[0mcd\x1b[0m"),
        ("ab\x07cdef", "abcd"),
    ],
)
def test_the_unfinished_line_fits_into_a_row(text: str, shown: str) -> None:
    assert fitted(text, 4) == shown


def test_the_rank_that_can_be_answered_has_the_unfinished_line() -> None:
    line = LiveLine(fd=-1, answered=1)
    line.update(1, "out", b"[1] ", b"name? ")
    line.update(0, "out", b"[0] ", b"...")
    assert line.redrawn() == b"[1] name? "


def test_one_rank_without_prefix_shows_each_byte_at_once(program: Callable[..., str]) -> None:
    script = program(
        BLOCK_USR1, "sys.stdout.write('half')", "sys.stdout.flush()", AWAIT_USR1, "print(' line')"
    )
    with subprocess.Popen(command("-n", "1", "--no-prefix", script), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert os.read(process.stdout.fileno(), 100) == b"half"
        process.send_signal(signal.SIGUSR1)
        assert process.stdout.read() == b" line\n"
        assert process.wait(DEADLINE_S) == 0


@pytest.mark.parametrize("options", [("--only-rank", "1,3"), ("--only-rank", "1", "--only-rank", "3")])
def test_only_the_ranks_that_are_asked_for_are_shown(
    program: Callable[..., str], tmp_path: Path, options: Sequence[str]
) -> None:
    script = program("print('out', rank)", "print('err', rank, file=sys.stderr)")
    logs = tmp_path / "logs"
    done = run("-n", "4", *options, "--log-dir", str(logs), script)
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == ["[1] out 1", "[3] out 3"]
    assert sorted(done.stderr.splitlines()) == ["[1] err 1", "[3] err 3"]
    assert (logs / "rank0.out").read_text() == "out 0\n"


def test_why_a_rank_failed_is_shown_even_if_its_output_is_not(program: Callable[..., str]) -> None:
    done = run("-n", "2", "--only-rank", "0", program("if rank == 1: raise ValueError('boom')", WAIT))
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1
    assert done.stderr.splitlines()[-1] == "ValueError: boom"


def test_one_rank_reads_standard_input(program: Callable[..., str]) -> None:
    script = program("print(repr(sys.stdin.read()))")
    done = subprocess.run(
        command("-n", "3", "--stdin", "1", script),
        input="typed\n", capture_output=True, text=True, timeout=DEADLINE_S,
    )  # fmt: skip
    assert sorted(done.stdout.splitlines()) == ["[0] ''", r"[1] 'typed\n'", "[2] ''"]


@pytest.mark.parametrize("option", ["--stdin", "--only-rank"])
def test_a_rank_that_is_not_there_is_refused(option: str) -> None:
    done = run("-n", "2", option, "2", *SAY_HI)
    assert done.returncode == 2
    assert f"{option} 2: the ranks here are 0 to 1" in done.stderr


def test_a_question_on_a_terminal_is_answered(program: Callable[..., str]) -> None:
    script = program("print('hello', input('name? ')) if rank == 1 else None")
    with on_a_terminal(*command("-n", "2", "--stdin", "1", "--no-banner", script)) as (process, terminal):
        read_until(terminal, b"name? ")
        os.write(terminal, b"Ada\n")
        read_until(terminal, b"hello Ada")
        assert process.wait(DEADLINE_S) == 0


def test_a_terminal_is_left_as_it_was_found(program: Callable[..., str]) -> None:
    """ipdb and the like change its mode to read a line, and a rank may be killed meanwhile."""
    script = program("import tty; tty.setraw(0)", "os.kill(os.getpid(), signal.SIGKILL)")
    with on_a_terminal(*command("-n", "1", "--stdin", "0", "--no-banner", script)) as (process, terminal):
        before = termios.tcgetattr(terminal)
        read_until(terminal, b"SIGKILL")
        assert process.wait(DEADLINE_S) == 137
        assert termios.tcgetattr(terminal) == before


def test_standard_input_is_refused_in_the_background_of_a_terminal() -> None:
    """A shell with job control starts it in the background."""

    def with_terminal() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    words = command("-n", "1", "--stdin", "0", *SAY_HI)
    ours, theirs = os.openpty()
    with subprocess.Popen(
        ["sh", "-mc", '"$@" & wait $!', "sh", *words],
        stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=with_terminal,
    ) as shell:  # fmt: skip
        os.close(theirs)
        said, _ = shell.communicate(timeout=DEADLINE_S)
    os.close(ours)
    assert "--stdin 0: this is a job in the background of its terminal" in said
    assert shell.returncode == 1
