"""A world of 128 ranks beside 8 busy processes: results are right, and a killed rank is named.

A busy host is no dead peer: the world may take its time, but no rank may be lost. Then one rank is
killed, and every other one names it. The time until it is named is printed and not asserted, since
it depends on the machine's load. Run it by `scripts/test full`.

usage: tests/full/many_ranks.py [--ranks 128] [--busy 8] [--times 1]
example: .venv/bin/python tests/full/many_ranks.py --times 20
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import pycollective as pc

BUSY = "import os; parent = os.getppid()\nwhile os.getppid() == parent: sum(range(100_000))"
CALLS = 20
CALL_S = 240.0
ROUND_S = 600.0
RIGHT, WRONG = 0, 1
AS_RANK = "MANY_RANKS_FOLDER"  # the folder where the ranks store what they saw


def on_a_rank(folder: Path) -> None:
    """Makes calls until one rank kills itself.

    Every other rank records the dead rank and the time.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the launcher's, when the first rank has ended
    pc.init(timeout=CALL_S)
    rank, size = pc.rank(), pc.size()
    x = np.empty(1000)
    for call in range(CALLS):
        x[:] = rank + call
        pc.allreduce(x)
        assert (x == size * (size - 1) / 2 + size * call).all(), (call, x[:4])
    pc.barrier()
    if rank == size // 2:
        (folder / "killed").write_text(str(time.monotonic()))  # one clock for all processes of the host
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        pc.barrier()
    except pc.PeerFailure as error:
        (folder / f"rank{rank}").write_text(json.dumps([error.peer, time.monotonic()]))


def one_round(ranks: int) -> str:
    """Returns the summary of one round. Raises if anything was wrong."""
    with tempfile.TemporaryDirectory() as name:
        began = time.monotonic()
        command = [sys.executable, "-m", "pycollective", "run", "-n", str(ranks), "--grace", "120", __file__]
        world = subprocess.Popen(
            command,
            env={**os.environ, AS_RANK: name, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = world.communicate(timeout=ROUND_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(world.pid, signal.SIGKILL)  # the remaining ranks ignore SIGTERM
        took_s = time.monotonic() - began
        heard = [json.loads(file.read_text()) for file in Path(name).glob("rank*")]
        killed = Path(name) / "killed"
        assert (killed.exists(), len(heard)) == (True, ranks - 1), (
            f"{len(heard)} of {ranks - 1} ranks named the killed one; the launcher's exit code is {world.returncode}:\n"
            + output[-4000:]
        )
        named = {rank for rank, _ in heard}
        assert named == {ranks // 2}, f"rank {ranks // 2} was killed, and ranks named {sorted(named)}"
        first, last = (pick(at for _, at in heard) - float(killed.read_text()) for pick in (min, max))
        return f"{took_s:.0f} s, right; the killed rank was named after {first:.2f} s first and {last:.2f} s last"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=128)
    parser.add_argument("--busy", type=int, default=8)
    parser.add_argument("--times", type=int, default=1)
    options = parser.parse_args()
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(options.busy)]
    wrong = 0
    try:
        for time_ in range(options.times):
            try:
                said = one_round(options.ranks)
            except (AssertionError, subprocess.TimeoutExpired) as error:
                wrong, said = wrong + 1, f"WRONG: {error}"
            print(
                f"many_ranks: {time_ + 1} of {options.times}: {options.ranks} ranks, {options.busy} busy: {said}",
                flush=True,
            )
    finally:
        for process in busy:
            process.kill()
            process.wait()
    return WRONG if wrong else RIGHT


if __name__ == "__main__":
    if AS_RANK in os.environ:
        on_a_rank(Path(os.environ[AS_RANK]))
    else:
        sys.exit(main())
