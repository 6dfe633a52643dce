"""How a rank ends that has been told to: at once, and not after a wait for ranks that are elsewhere."""

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
from pycollective import _core, lifetime

def under_way():
    return any(call["state"] == "running" for call in json.loads(_core._flight_record()))

def interrupts(begun):
    while not begun():
        os.sched_yield()
    os.kill(os.getpid(), signal.SIGINT)

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
except KeyboardInterrupt:
    print("caught")
"""
# What is interrupted, and how one sees that it has begun.
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


def program(body: str, begun: str) -> str:
    return PROGRAM.replace("BODY", body).replace("BEGUN", begun)


@contextlib.contextmanager
def two_ranks(folder: Path, text: str) -> Iterator[list[subprocess.Popen[str]]]:
    (folder / "program.py").write_text(text)
    ranks = [
        subprocess.Popen(
            [sys.executable, folder / "program.py", str(rank), folder / "board"],
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
            ranks[0].wait(1)  # it waits
        ranks[1].communicate("", timeout=45)  # until the other one has gone
        assert ranks[0].wait(45) == 0
