"""One rank of a world over several hosts, which test_hosts.py starts. Prints results in JSON lines.

usage: rank_on_host.py exact | until_broken [address rank size]
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from pathlib import Path

import numpy as np

import pycollective as pc
from pycollective.tools.doctor.sockets import LISTENING, own_addresses

LARGE = 100_003  # 800 kB: above every threshold, and no multiple of anything
INIT_S = float(os.environ["INIT_S"])
ME = Path("/proc/self")


def say(**facts: object) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def exact() -> None:
    """Makes every call with every length that is cut differently. Checks the exact result."""
    rank, size = pc.rank(), pc.size()
    for count in (0, 1, size - 1, size, size + 1, LARGE):
        ramp = np.arange(count, dtype=np.float64)
        assert np.array_equal(pc.allreduce(ramp + rank), size * ramp + size * (size - 1) // 2)
        for root in range(size):
            assert np.array_equal(pc.broadcast(ramp + rank, root=root), ramp + root)
            reduced = pc.reduce(ramp * (rank + 1), root=root)
            assert rank != root or np.array_equal(reduced, ramp * (size * (size + 1) // 2))
        parts = pc.allgather(ramp + rank)
        assert np.array_equal(parts, np.concatenate([ramp + each for each in range(size)]))
        assert np.array_equal(pc.reduce_scatter(parts * 1.0), size * (ramp + rank))
        messages(ramp)
        pc.barrier()


def messages(ramp: np.ndarray) -> None:
    """Sends a message from every rank to every other."""
    rank, size = pc.rank(), pc.size()
    for sender in range(size):
        for receiver in range(size):
            if rank == sender != receiver:
                pc.send(ramp + sender, receiver)
            if rank == receiver != sender:
                assert np.array_equal(pc.recv(np.empty_like(ramp), sender), ramp + sender)


def shared_memories() -> int:
    """Returns how many ranks' shared memory this one has open, its own included."""
    links = []
    for each in (ME / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # of the listing itself
            links.append(str(each.readlink()))
    return sum(link.startswith("/memfd:pycollective") for link in links)


def algorithm() -> str:
    """Returns the algorithm of a large allreduce."""
    words = pc.explain("allreduce", nbytes=1 << 20).split()
    return words[words.index("algorithm:") + 1]


def until_broken() -> None:
    """Makes calls until an error ends them."""
    say(ready=pc.rank())
    x = np.zeros(LARGE)
    while True:
        pc.allreduce(x)


def main(what: str, address: str | None = None, rank: str | None = None, size: str | None = None) -> None:
    began = time.monotonic()
    try:
        if address is None or rank is None or size is None:
            pc.init(timeout=INIT_S)
        else:
            pc.init(address, rank=int(rank), size=int(size), timeout=INIT_S)
        began = time.monotonic()
        {"exact": exact, "until_broken": until_broken}[what]()
        place = [pc.rank(), pc.size(), pc.local_rank(), pc.local_size(), os.uname().nodename]
        talks = {"talks_from": own_addresses(ME), "listens_at": own_addresses(ME, LISTENING)}
        say(place=place, shared=shared_memories(), algorithm=algorithm(), **talks)
        pc.shutdown()
    except pc.CollectiveError as error:
        say(error=type(error).__name__, message=str(error), seconds=time.monotonic() - began)


if __name__ == "__main__":
    main(*sys.argv[1:])
