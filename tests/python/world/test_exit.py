"""A rank that was ordered to end does so at once, without a wait for ranks that are elsewhere."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PROGRAM = """
import json, os, signal, sys, threading
import numpy as np
import pycollective as pc
from pycollective import _core
from pycollective.runtime import lifetime

def under_way():
    return any(call["state"] == "running" for call in json.loads(_core._flight_record()))

def interrupts(begun):
    while not begun():
        os.sched_yield()
    os.kill(os.getpid(), signal.SIGNAL)

rank = int(sys.argv[1])
lifetime.AT_EXIT_S = 60  # longer than the test takes
pc.init("file://" + sys.argv[2], rank=rank, size=2, timeout=50)
pc.barrier()
if rank == 1:
    sys.stdin.read()
    os._exit(0)
try:
    threading.Thread(target=interrupts, args=(BEGUN,)).start()
    BODY
except (KeyboardInterrupt, TimeoutError):
    print("caught", flush=True)
"""
# What is interrupted, and what shows that it has begun.
BODIES = {
    "a call": ("pc.allreduce(np.ones(1))", "under_way"),
    "a call in the background": ("pc.allreduce_async(np.ones(1)).wait()", "under_way"),
    "a message": ("pc.recv(np.ones(1), 1)", "under_way"),
    "the store": ("asks = True; pc.store().get('a key that no rank sets')", "lambda: 'asks' in globals()"),
    "its own code": ("computes = True\n    while True: pass", "lambda: 'computes' in globals()"),
    "its own handler": (
        "signal.signal(signal.SIGINT, lambda *_: sys.exit(print('caught'))); pc.barrier()",
        "under_way",
    ),
}


def program(body: str, begun: str, signal: str = "SIGINT") -> str:
    return PROGRAM.replace("BODY", body).replace("BEGUN", begun).replace("SIGNAL", signal)


@contextlib.contextmanager
def two_ranks(folder: Path, text: str) -> Iterator[list[subprocess.Popen[str]]]:
    (folder / "program.py").write_text(text)
    ranks = [
        subprocess.Popen(
            [sys.executable, folder / "program.py", str(rank), folder / "kvs"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    try:
        yield ranks
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()


@pytest.mark.parametrize("where", BODIES)
def test_a_rank_that_ctrl_c_ends_does_not_wait_for_the_others(where: str, tmp_path: Path) -> None:
    with two_ranks(tmp_path, program(*BODIES[where])) as ranks:
        printed, _ = ranks[0].communicate(timeout=45)
        assert (ranks[0].returncode, printed) == (0, "caught\n")


@pytest.mark.parametrize("number", ["SIGTERM", "SIGHUP", "SIGUSR1"])
def test_a_rank_that_a_scheduler_ends_in_its_own_code_does_not_wait_for_the_others(
    number: str, tmp_path: Path
) -> None:
    handler = f"signal.signal(signal.{number}, lambda *_: sys.exit(print('caught')))\n"
    text = program(*BODIES["its own code"], number).replace("pc.init(", handler + "pc.init(", 1)
    with two_ranks(tmp_path, text) as ranks:
        printed, _ = ranks[0].communicate(timeout=45)
        assert (ranks[0].returncode, printed) == (0, "caught\n")


def test_a_rank_that_goes_on_after_ctrl_c_waits_for_the_others_at_its_end(tmp_path: Path) -> None:
    goes_on = "\n".join(
        [
            "waits = True",
            "    while True: pass",
            "except KeyboardInterrupt:",
            "    pc.barrier()",
            "    print('done', flush=True)",
            "try:",
            "    0",
        ]
    )
    text = program(goes_on, "lambda: 'waits' in globals()")
    text = text.replace("    sys.stdin.read()", "    pc.barrier()\n    sys.stdin.read()")
    with two_ranks(tmp_path, text) as ranks:
        assert ranks[0].stdout is not None
        assert ranks[0].stdout.readline() == "done\n"
        with pytest.raises(subprocess.TimeoutExpired):
            ranks[0].wait(1)  # it still waits
        ranks[1].communicate("", timeout=45)  # until the other rank has ended
        assert ranks[0].wait(45) == 0


def test_a_signal_that_ends_no_rank_changes_nothing_at_the_end(tmp_path: Path) -> None:
    alarm = (
        "def late(*_): raise TimeoutError\n    signal.signal(signal.SIGALRM, late); pc.allreduce(np.ones(1))"
    )
    with two_ranks(tmp_path, program(alarm, "under_way", "SIGALRM")) as ranks:
        assert ranks[0].stdout is not None
        assert ranks[0].stdout.readline() == "caught\n"
        with pytest.raises(subprocess.TimeoutExpired):
            ranks[0].wait(1)  # it still waits
        ranks[1].communicate("", timeout=45)  # until the other rank has ended
        assert ranks[0].wait(45) == 0


def test_a_handler_that_was_set_between_two_worlds_is_watched_in_the_second(tmp_path: Path) -> None:
    """It runs in the program's own code, where no call sees it."""
    first = "pc.barrier()\nif rank == 1:\n    sys.stdin"
    again = (
        "pc.shutdown()\nsignal.signal(signal.SIGINT, lambda *_: sys.exit(print('caught')))\n"
        'pc.init("file://" + sys.argv[2] + "2", rank=rank, size=2, timeout=50)\n'
    )
    text = program(*BODIES["its own code"])
    assert first in text
    with two_ranks(tmp_path, text.replace(first, again + first)) as ranks:
        printed, _ = ranks[0].communicate(timeout=45)
        assert (ranks[0].returncode, printed) == (0, "caught\n")


# The program replaces our handler after init(): the next call that waits sees it.
WAITS = """
import ctypes
LATER
def handler():
    action = (ctypes.c_void_p * 32)()
    assert ctypes.CDLL(None).sigaction(signal.SIGNAL, None, action) == 0
    return action[0]

def lets_go(its=handler()):
    while handler() == its:
        os.sched_yield()
    pc.store().set("it is watched", 1)

if rank == 1:
    pc.store().get("it is watched")
else:
    threading.Thread(target=lets_go).start()
pc.barrier()
"""
AGAIN = "signal.signal(signal.SIGUSR1, lambda *_: sys.exit(print('caught')))"
LATER = {
    "a handler": AGAIN,
    "one that calls the first": "import faulthandler\n"
    "faulthandler.register(signal.SIGUSR1, chain=True, all_threads=False)",
}


@pytest.mark.parametrize("later", LATER)
def test_a_handler_that_is_set_after_init_is_watched_from_the_next_call_that_waits(
    later: str, tmp_path: Path
) -> None:
    text = program(*BODIES["its own code"], "SIGUSR1").replace("pc.init(", f"{AGAIN}\npc.init(", 1)
    text = text.replace(
        "pc.barrier()\n", WAITS.replace("LATER", LATER[later]).replace("SIGNAL", "SIGUSR1"), 1
    )
    with two_ranks(tmp_path, text) as ranks:
        printed, _ = ranks[0].communicate(timeout=45)
        assert (ranks[0].returncode, printed) == (0, "caught\n")


WRONG = """
import sys
import numpy as np
import pycollective as pc
pc.init("file://" + sys.argv[2], rank=int(sys.argv[1]), size=2, timeout=50)
pc.broadcast(np.ones(4), root=pc.rank())
print("done")
"""

# Both are in calls of the world: rank 1 in shutdown(), rank 0 in another one.
LEAVES = """
import sys
import numpy as np
import pycollective as pc
pc.init("file://" + sys.argv[2], rank=int(sys.argv[1]), size=2, timeout=50)
pc.barrier()
if pc.rank() == 0:
    pc.allreduce(np.ones(1000))
"""


@pytest.mark.parametrize(("last", "code"), [("", 1), ("sys.exit(5)", 5)])
def test_ranks_that_learn_at_their_end_that_a_result_was_wrong_exit_as_failed(
    last: str, code: int, tmp_path: Path
) -> None:
    with two_ranks(tmp_path, WRONG + last) as ranks:
        for rank in ranks:
            assert rank.communicate(timeout=45)[0] == "done\n"
        assert [rank.returncode for rank in ranks] == [code, code]


def test_a_rank_that_ends_well_where_another_one_needs_it_keeps_its_exit_code(tmp_path: Path) -> None:
    with two_ranks(tmp_path, LEAVES) as ranks:
        ended = [rank.communicate("", timeout=45) and rank.returncode for rank in ranks]
        assert ended == [1, 0]
