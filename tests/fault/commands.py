"""Ranks that run their supervisor's commands: calls with exact data, pauses, and resyncs."""

from __future__ import annotations

import ctypes
import select
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

import pycollective as pc

from .limits import Ledger
from .rank import Rank, attempt
from .world import Event, World

SETTLE_S = 10.0
SMALL, LARGE = 1000, (64 << 20) // 8  # elements
ROOTED = ("broadcast", "reduce")
COLLECTIVES = ("allreduce", "barrier", *ROOTED)


@dataclass(frozen=True)
class Call:
    what: str  # a collective, send, recv, resync, shutdown or init
    count: int = SMALL
    root: int = 0
    peer: int = 0
    timeout: float = 30.0

    @property
    def name(self) -> str:
        large = "-64MiB" if self.count == LARGE and self.what in (*COLLECTIVES, "send") else ""
        return self.what + large


def perform(me: Rank, call: Call) -> Callable[[], object]:
    """The call, ready to be made."""
    x = np.full(call.count, me.rank + 1.0)
    if call.what == "allreduce":
        return partial(allreduce, me, x, call.timeout)
    if call.what == "broadcast":
        return partial(pc.broadcast, x, call.root, timeout=call.timeout)
    if call.what == "reduce":
        return partial(pc.reduce, x, root=call.root, timeout=call.timeout)
    if call.what == "send":
        return partial(pc.send, x, call.peer, timeout=call.timeout)
    if call.what == "recv":
        return partial(pc.recv, x, call.peer, timeout=call.timeout)
    if call.what == "init":
        return partial(me.join, call.timeout)
    return partial(getattr(pc, call.what), timeout=call.timeout)


# ---- what a rank does


def allreduce(me: Rank, x: np.ndarray[Any, np.dtype[np.float64]], timeout: float) -> None:
    pc.allreduce(x, timeout=timeout)
    if not (x == me.size * (me.size + 1) / 2).all():
        raise AssertionError(f"wrong result: {x}")


def make(me: Rank, call: dict[str, Any]) -> None:
    ready = perform(me, Call(**call))
    me.report("enters")
    outcome = attempt(ready)
    me.report("outcome", **outcome, in_world=pc.is_initialized())


def settle(me: Rank, resync: bool) -> None:
    """Resyncs, and reports whether the next allreduce is right."""
    if resync:
        pc.resync(timeout=SETTLE_S)
    x = np.full(SMALL, me.rank + 1.0)
    pc.allreduce(x, timeout=SETTLE_S)
    me.report("settled", right=bool((x == me.size * (me.size + 1) / 2).all()))


def loop(me: Rank, count: int, timeout: float) -> None:
    """Makes allreduces until rank 0 receives the command to end.

    All ranks then end after the same one.
    """
    expected = me.size * (me.size + 1) / 2
    me.report("loops")
    ends, rounds = False, 0
    while not ends:
        x = np.full(count, me.rank + 1.0)
        x[0] = me.rank == 0 and me.has_command()
        pc.allreduce(x, timeout=timeout)
        ends = bool(x[0])
        rounds += 1
        if not (x[1:] == expected).all():
            raise AssertionError(f"round {rounds}: {x} instead of {expected}")
    if me.rank == 0:
        me.next_command()
    me.report("looped", rounds=rounds)


def stand_in_a_loop(me: Rank, _: float) -> None:
    while not select.select([me.commands], [], [], 0)[0]:
        pass


def stand_in_sleep(_: Rank, seconds: float) -> None:
    time.sleep(seconds)


def stand_with_the_gil(_: Rank, seconds: float) -> None:
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))


def stand(me: Rank, where: str, seconds: float) -> None:
    me.report("stands")
    STANDS[where](me, seconds)


STANDS: dict[str, Callable[[Rank, float], None]] = {
    each.__name__: each for each in (stand_in_a_loop, stand_in_sleep, stand_with_the_gil)
}


def run_commands(me: Rank) -> None:
    while True:
        what, *arguments = me.next_command()
        {"call": make, "settle": settle, "loop": loop, "stand": stand}[what](me, *arguments)


def join_and_run_commands(me: Rank) -> None:
    me.join()
    me.report("joined")
    run_commands(me)


# ---- what the supervisor does


def joined_world(size: int) -> World:
    world = World(size, join_and_run_commands)
    world.expect("joined")
    return world


def enter(world: World, call: Call, ranks: list[int]) -> None:
    """Makes these ranks start the call. Returns when each of them has begun it."""
    world.send(["call", asdict(call)], ranks)
    world.expect("enters", ranks)


def must_work(world: World, ledger: Ledger, *, resync: bool, what: object) -> None:
    world.send(["settle", resync])
    for rank, event in world.expect("settled").items():
        ledger.require("unusable", event["right"], f"{what}: the next allreduce on rank {rank} is wrong")


def complaint(event: Event, raised: str, peer: int | None) -> str:
    """Returns "" if the call ended with this error, which names this peer."""
    if event["raised"] != raised:
        return f"raised {event['raised']}, not {raised}"
    if peer is not None and event["peer"] != peer:
        return f"its peer is {event['peer']}, not {peer}"
    if peer is not None and f"rank {peer}" not in event["message"]:
        return f"no word of rank {peer}"
    return ""
