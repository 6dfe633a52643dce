"""The share of a network's speed that an allreduce reaches: worlds over network namespaces.

    sudo .venv/bin/python benchmarks/hosts.py --hosts 2 --rate 10gbit

namespaces.py makes the hosts. Each round measures every size twice in the same processes. The first
is a raw stream of the bytes that a bandwidth-optimal allreduce moves, 2 (n - 1) / n of the array,
from every host to the next one over plain sockets. The second is an allreduce. Times are those of
the slowest rank. With --encrypt each round has a second world with encrypted data, and the last
column is the time of an allreduce there, as a multiple of the unencrypted time. With
--connection-mbit the kernel paces every connection, as some networks do; --sockets then shows how
much speed several connections recover.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from namespaces import hosts

RAW_PORT, STORE_PORT = 29500, 29501
SO_MAX_PACING_RATE = 47  # from asm-generic/socket.h
UNITS = {"K": 1 << 10, "M": 1 << 20}


class RawRing:
    """A plain TCP connection from every host to the next one."""

    def __init__(self, rank: int, addresses: list[str]) -> None:
        listener = socket.create_server((addresses[rank], RAW_PORT))
        deadline = time.monotonic() + 10
        while True:
            try:
                self.to = socket.create_connection((addresses[(rank + 1) % len(addresses)], RAW_PORT), 5)
                break
            except OSError:  # the peer does not listen yet
                if time.monotonic() > deadline:
                    raise
        self.source, _ = listener.accept()
        for each in (self.to, self.source):
            each.setblocking(False)
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.poll = select.poll()

    def stream(self, out: memoryview, into: memoryview) -> None:
        """Sends all of `out`, and fills `into` meanwhile."""
        self.poll.register(self.to, select.POLLOUT)
        self.poll.register(self.source, select.POLLIN)
        sent = got = 0
        while sent < len(out) or got < len(into):
            for fd, _ in self.poll.poll():
                if fd == self.to.fileno():
                    sent += self.to.send(out[sent : sent + (1 << 20)])
                    if sent == len(out):
                        self.poll.unregister(self.to)
                else:
                    got += self.source.recv_into(into[got:])
                    if got == len(into):
                        self.poll.unregister(self.source)


def pace(connection_mbit: int) -> None:
    """Limits the rate of every open TCP connection of this process."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                with socket.socket(fileno=os.dup(int(name))) as each:
                    if each.family != socket.AF_UNIX:
                        each.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, connection_mbit * 125_000)


def median_s(once: Callable[[], object], nbytes: int, budget_s: float) -> float:
    """Returns the median time of single calls."""
    iterations = int(np.clip(budget_s * 1e9 / max(nbytes, 8 << 10), 5, 2000))
    times = []
    for _ in range(iterations + 2):
        began = time.perf_counter()
        once()
        times.append(time.perf_counter() - began)
    return statistics.median(times[2:])


def measure(
    sizes: list[int], name: str, budget_s: float, ring: RawRing | None
) -> dict[int, dict[str, float]]:
    """Returns by size the seconds of the slowest rank, for `name` and, with `ring`, for "raw"."""
    import pycollective as pc

    size, slowest = pc.size(), np.zeros(1)
    figures: dict[int, dict[str, float]] = {}
    for nbytes in sizes:
        x = np.zeros(max(nbytes // 4, 1), np.float32)
        moved = nbytes * 2 * (size - 1) // size
        out, into = memoryview(bytearray(moved)), memoryview(bytearray(moved))
        ways = {"raw": partial(ring.stream, out, into)} if ring else {}
        for way, once in {**ways, name: partial(pc.allreduce, x)}.items():
            pc.barrier()
            slowest[0] = median_s(once, nbytes, budget_s)
            figures.setdefault(nbytes, {})[way] = float(pc.allreduce(slowest, "max")[0])
    return figures


def be_a_rank(options: argparse.Namespace, sizes: list[int]) -> None:
    """Runs as a rank. Rank 0 prints one JSON line per size and round."""
    import pycollective as pc

    ring = RawRing(options.rank, options.addresses)
    for number in range(options.rounds):
        figures: dict[int, dict[str, float]] = {nbytes: {} for nbytes in sizes}
        for encrypts in (False, True) if options.encrypt else (False,):
            if options.encrypt:
                os.environ["PYCOLLECTIVE_SECURITY"] = "encrypt" if encrypts else "auth"
            pc.init(f"{options.addresses[0]}:{STORE_PORT}", rank=options.rank, size=options.hosts, timeout=60)
            if options.connection_mbit:
                pace(options.connection_mbit)
            name = "encrypted" if encrypts else "allreduce"
            for nbytes, each in measure(sizes, name, options.budget_s, None if encrypts else ring).items():
                figures[nbytes].update(each)
            pc.shutdown()
        if options.rank == 0:
            for nbytes, each in figures.items():
                print(json.dumps({"round": number, "nbytes": nbytes, **each}), flush=True)


def nbytes_of(text: str) -> int:
    """Parses 8, 64K or 1M."""
    return int(text[:-1]) * UNITS[text[-1]] if text[-1] in UNITS else int(text)


def report(lines: list[dict[str, float]], rate: str) -> None:
    """Prints the table: medians of the rounds, and the share of the raw stream's speed."""
    encrypts = "encrypted" in lines[0]
    print(
        f"{'bytes':>10} {'raw us':>10} {'allreduce us':>13} {'raw / allreduce':>16}   min .. max   ({rate})"
        + (f" {'encrypted us':>13} {'times':>6}" if encrypts else "")
    )
    for nbytes in dict.fromkeys(line["nbytes"] for line in lines):
        here = [line for line in lines if line["nbytes"] == nbytes]
        raw, ours = (statistics.median(line[name] for line in here) * 1e6 for name in ("raw", "allreduce"))
        shares = sorted(line["raw"] / line["allreduce"] for line in here)
        row = (
            f"{nbytes:>10} {raw:>10.1f} {ours:>13.1f} {statistics.median(shares):>16.3f}"
            f"   {shares[0]:.3f} .. {shares[-1]:.3f}"
        )
        if encrypts:
            longer = statistics.median(line["encrypted"] / line["allreduce"] for line in here)
            row += f"   {statistics.median(line['encrypted'] for line in here) * 1e6:>13.1f} {longer:>6.2f}"
        print(row)


def main() -> int:
    """Makes the hosts and starts this program on each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--rate", default="10gbit", help="tbf's notation, or none")
    parser.add_argument("--congestion", default="", help="net.ipv4.tcp_congestion_control of the namespaces")
    parser.add_argument("--sizes", default="8,64K,1M,16M")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--encrypt", action="store_true", help="also say what encryption costs")
    parser.add_argument("--connection-mbit", type=int, default=0, help="of every connection; 0: no limit")
    parser.add_argument("--sockets", default="1", help="PYCOLLECTIVE_TCP_SOCKETS")
    parser.add_argument("--budget-s", type=float, default=0.3, help="roughly, per size and way, at 1 GB/s")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--addresses", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    sizes = [nbytes_of(word) for word in options.sizes.split(",")]
    if options.rank is not None:
        be_a_rank(options, sizes)
        return 0
    with hosts(options.hosts, rate=options.rate, congestion=options.congestion) as made:
        command = [
            sys.executable,
            str(Path(__file__).resolve()),
            *sys.argv[1:],
            "--hosts",
            str(options.hosts),
        ]
        command += ["--addresses", *(host.address for host in made)]
        ranks = [
            subprocess.Popen(
                host.command([*command, "--rank", str(rank)]),
                stdout=subprocess.PIPE if rank == 0 else None,
                text=True,
                env={**os.environ, "PYCOLLECTIVE_TCP_SOCKETS": options.sockets},
            )
            for rank, host in enumerate(made)
        ]
        text, _ = ranks[0].communicate(timeout=600)
        codes = [each.wait(60) for each in ranks]
    if any(codes):
        return 1
    report([json.loads(line) for line in text.splitlines()], options.rate)
    return 0


if __name__ == "__main__":
    sys.exit(main())
