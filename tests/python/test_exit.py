"""How a rank ends that has been told to: at once, and not after a wait for ranks that are elsewhere."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PROGRAM = """
import os, signal, sys, threading
import numpy as np
import pycollective as pc
from pycollective import lifetime

rank = int(sys.argv[1])
lifetime.AT_EXIT_S = 60  # longer than the test takes
pc.init("file://" + sys.argv[2], rank=rank, size=2, timeout=50)
pc.barrier()
if rank == 1:
    sys.stdin.read()
    os._exit(0)
try:
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    BODY
except KeyboardInterrupt:
    print("caught")
"""
BODIES = {
    "a call": "pc.allreduce(np.ones(1))",
    "a call in the background": "pc.allreduce_async(np.ones(1)).wait()",
    "a message": "pc.recv(np.ones(1), 1)",
    "the store": "pc.store().get('a key that no rank sets')",
    "its own code": "signal.pause()",
    "its own handler": "signal.signal(signal.SIGINT, lambda *_: sys.exit(print('caught'))); pc.barrier()",
}


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
    with two_ranks(tmp_path, PROGRAM.replace("BODY", BODIES[where])) as ranks:
        printed, _ = ranks[0].communicate(timeout=45)
        assert (ranks[0].returncode, printed) == (0, "caught\n")


def test_a_rank_that_goes_on_after_ctrl_c_waits_for_the_others_at_its_end(tmp_path: Path) -> None:
    goes_on = "signal.pause()\nexcept KeyboardInterrupt:\n    pc.barrier()\n    print('done', flush=True)\ntry:\n    0"
    text = PROGRAM.replace("BODY", goes_on)
    text = text.replace("    sys.stdin.read()", "    pc.barrier()\n    sys.stdin.read()")
    with two_ranks(tmp_path, text) as ranks:
        assert ranks[0].stdout is not None
        assert ranks[0].stdout.readline() == "done\n"
        with pytest.raises(subprocess.TimeoutExpired):
            ranks[0].wait(1)  # it waits
        ranks[1].communicate("", timeout=45)  # until the other one has gone
        assert ranks[0].wait(45) == 0
