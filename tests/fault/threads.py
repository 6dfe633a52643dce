"""Two threads of each rank on one group and on the world: every result is right, none hangs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

import pycollective as pc

from .limits import Ledger, Limit, Trial
from .rank import Rank
from .world import World

NAME = "threads"
LIMITS = (
    Limit("wrong results and errors", "wrong"),
    Limit("hangs and crashes", "hang"),
)
CALL_S = 30.0
SIZES = (2, 3, 4)
FULL, QUICK = 1000, 200  # calls of each thread
COUNTS = (8, 10_000)  # elements: one count that is sent at once, one that waits for its receiver's consent
LAST_TAG = 9


class Threads:
    """The work of the two threads of one rank."""

    def __init__(self, me: Rank, calls: int) -> None:
        self.me, self.calls = me, calls
        self.after, self.before = (me.rank + 1) % me.size, (me.rank - 1) % me.size

    def must_be(self, x: np.ndarray, expected: float) -> None:
        if not (x == expected).all():
            raise AssertionError(f"{x} instead of {expected}")

    def allreduces(self, by: Callable[..., object]) -> None:
        """Both threads make the same calls, so any order of the two is the same on all ranks."""
        for number in range(self.calls):
            x = np.full(8, self.me.rank + 1.0)
            if number % 50 == 0 and number < 200:
                pc.world()  # a query during the calls
            by(x, timeout=CALL_S)
            self.must_be(x, self.me.size * (self.me.size + 1) / 2)

    def passes_on(self, tag: int) -> None:
        """Repeatedly sends a message to the next rank and receives one from the previous rank."""
        for number in range(self.calls):
            x = np.full(COUNTS[number % 2], self.me.rank + 1.0)
            if self.me.rank == 0:
                pc.send(x, self.after, tag=tag, timeout=CALL_S)
                pc.recv(x, self.before, tag=tag, timeout=CALL_S)
                self.must_be(x, self.before + 1)
            else:
                pc.recv(x, self.before, tag=tag, timeout=CALL_S)
                self.must_be(x, self.before + 1)
                pc.send(np.full_like(x, self.me.rank + 1.0), self.after, tag=tag, timeout=CALL_S)

    def waits_for_the_other(self) -> None:
        x = np.empty(8)
        pc.recv(x, self.before, tag=LAST_TAG, timeout=CALL_S)
        self.must_be(x, -1.0)

    def allreduces_then_sends(self) -> None:
        self.allreduces(pc.allreduce)
        pc.send(np.full(8, -1.0), self.after, tag=LAST_TAG, timeout=CALL_S)

    def work(self, what: str) -> tuple[Callable[[], None], Callable[[], None]]:
        return {
            "group-and-world": (
                partial(self.allreduces, pc.world().allreduce),
                partial(self.allreduces, pc.allreduce),
            ),
            "messages": (partial(self.passes_on, 1), partial(self.passes_on, 2)),
            "allreduce-and-messages": (partial(self.allreduces, pc.allreduce), partial(self.passes_on, 1)),
            "recv-that-waits-for-the-other": (self.waits_for_the_other, self.allreduces_then_sends),
        }[what]


WORKS = ("group-and-world", "messages", "allreduce-and-messages", "recv-that-waits-for-the-other")


def body(what: str, calls: int, me: Rank) -> None:
    me.join()
    errors: list[str] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=guarded, args=(work,)) for work in Threads(me, calls).work(what)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if not errors:
        pc.shutdown(timeout=CALL_S)
    me.report("done", errors=errors)


def run(what: str, size: int, calls: int, ledger: Ledger) -> None:
    with World(size, partial(body, what, calls)) as world:
        for rank, event in world.expect("done", within_s=60).items():
            ledger.require("wrong", not event["errors"], f"rank {rank}: {event['errors']}")


@contextlib.contextmanager
def trials(quick: bool, seed: int) -> Iterator[Iterator[Trial]]:
    del seed  # the system decides the order of the threads
    calls = QUICK if quick else FULL
    yield (Trial(f"{what}-{size}", partial(run, what, size, calls)) for what in WORKS for size in SIZES)
