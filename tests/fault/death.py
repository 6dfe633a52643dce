"""kill -9 at a random moment: every survivor soon raises PeerFailure with the right peer.

No survivor leaves anything behind.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import pycollective as pc

from .limits import Ledger, Limit, Trial
from .rank import Rank, attempt, facts_of
from .world import World

NAME = "death"
LIMITS = (
    Limit("kill to last survivor's raise", "detect", 0.25, "p99"),
    Limit("survivors without PeerFailure of the right peer and pid", "blame"),
    Limit("later calls that did not raise the same", "later"),
    Limit("wrong results", "wrong"),
    Limit("descriptors, threads, children, memory files left", "left"),
    Limit("survivors with another exit status", "status"),
    Limit("hangs and crashes", "hang"),
)
FULL, QUICK = 500, 40
MOST_DELAY_S = 0.25  # about one 64 MiB allreduce
LARGEST_TOGETHER = 160 << 20  # bytes of one array on all ranks


@dataclass(frozen=True)
class Plan:
    number: int
    size: int
    victim: int
    call: str
    nbytes: int
    delay_s: float
    forker: int  # the rank that has a live child, or -1 for none
    behind_pythons_back: bool  # it was forked by C code, which runs no handler of Python's
    lingers: bool  # survivors stay until all have raised; else the error ends each process

    @property
    def name(self) -> str:
        return f"{self.number}-{self.call}-{self.nbytes}-of-{self.size}"


def plan(number: int, seed: int) -> Plan:
    rng = random.Random(f"{seed}/{NAME}/{number}")
    size = rng.randint(2, 8)
    sizes = [8, 1 << 10, 64 << 10, 100 << 10, 1 << 20, 16 << 20, 64 << 20]
    nbytes = rng.choice([each for each in sizes if each * size <= LARGEST_TOGETHER])
    victim = rng.randrange(size)
    survivors = [rank for rank in range(size) if rank != victim]
    forker = [victim, rng.choice(survivors), -1, victim, -1, -1][number % 6]
    return Plan(
        number=number,
        size=size,
        victim=victim,
        call=rng.choice(["allreduce", "allreduce", "broadcast", "messages", "barrier"]),
        nbytes=nbytes,
        delay_s=rng.uniform(0, MOST_DELAY_S if nbytes >= 1 << 20 else MOST_DELAY_S / 10),
        forker=forker,
        behind_pythons_back=rng.random() < 0.5,
        lingers=number // 6 % 2 == 0,
    )


# ---- what a rank does


class WrongResult(Exception):
    pass


def work_of(me: Rank, plan: Plan) -> Callable[[], object]:
    """Returns one call, to be repeated until it raises. It checks its result."""
    x = np.full(plan.nbytes // 8, me.rank + 1.0)
    out = np.zeros_like(x)
    seen = slice(None, None, max(1, len(x) // 64))  # so that nearly all the time is spent in calls
    total = me.size * (me.size + 1) / 2
    rounds = itertools.count()

    def must_be(got: Any, expected: float) -> None:
        if not (got[seen] == expected).all():
            raise WrongResult(f"{got[seen]} instead of {expected}")

    def allreduce() -> None:
        must_be(pc.allreduce(x, out=out), total)

    def broadcast() -> None:
        root = next(rounds) % me.size
        out[seen] = me.rank + 1
        must_be(pc.broadcast(out, root), root + 1)

    def messages() -> None:
        # Pairs exchange messages. A rank without a partner waits for a message that never arrives.
        # All are informed of a death in any pair.
        peer = me.rank ^ 1
        if peer >= me.size:
            pc.recv(out, 0, tag=99)
        elif me.rank < peer:
            pc.send(x, peer)
            must_be(pc.recv(out, peer), peer + 1)
        else:
            must_be(pc.recv(out, peer), peer + 1)
            pc.send(x, peer)

    calls = {"allreduce": allreduce, "broadcast": broadcast, "messages": messages, "barrier": pc.barrier}
    return calls[plan.call]


def body(plan: Plan, me: Rank) -> int:
    me.join()
    if plan.forker == me.rank:
        child = me.fork_idler(behind_pythons_back=plan.behind_pythons_back)
    work = work_of(me, plan)
    me.report("ready")
    me.next_command()
    try:
        me.report("begins")
        while True:
            work()
    except Exception as error:
        me.report("raised", **facts_of(error))
        end = error
    if plan.lingers:
        me.next_command()
        me.report("again", **attempt(work))
        pc.shutdown()
    else:  # as the interpreter does when an exception ends the program
        sys.last_type, sys.last_value = type(end), end
        atexit._run_exitfuncs()
    if plan.forker == me.rank:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    me.report("left", found=me.left_behind())
    return 0 if plan.lingers else 1


# ---- what the supervisor does


def run(plan: Plan, ledger: Ledger) -> None:
    memory_files = set(os.listdir("/dev/shm"))
    with World(plan.size, partial(body, plan)) as world:
        survivors = [rank for rank in range(plan.size) if rank != plan.victim]
        pid = world.ranks[plan.victim].pid
        world.expect("ready")
        world.send("go")
        world.expect("begins")
        world.pause(plan.delay_s)
        killed = world.signal(plan.victim, signal.SIGKILL)
        raised = world.expect("raised", survivors, within_s=10)
        ledger.measure("detect", max(event.at for event in raised.values()) - killed)
        for rank, event in raised.items():
            ledger.require(
                "wrong", event["raised"] != "WrongResult", f"{plan}\nrank {rank}: {event['message']}"
            )
            for what in complaints(plan, rank, event.facts, pid):
                ledger.fault("blame", f"{plan}\nrank {rank}: {what}\n{event.facts}")
                break
        if plan.lingers:
            world.send("all have raised", survivors)
            for rank, event in world.expect("again", survivors).items():
                same = event["raised"] == "PeerFailure" and event["peer"] == plan.victim
                ledger.require("later", same, f"{plan}\nrank {rank}: {event.facts}")
        for rank, event in world.expect("left", survivors).items():
            ledger.require("left", not event["found"], f"{plan}\nrank {rank}: {event['found']}")
        statuses = world.exit_statuses(survivors)
        expected = 0 if plan.lingers else 1
        ledger.require("status", set(statuses.values()) == {expected}, f"{plan}: {statuses}")
    left = {name for name in set(os.listdir("/dev/shm")) - memory_files if "pycollective" in name}
    ledger.require("left", not left, f"{plan}: /dev/shm has {left}")


def complaints(plan: Plan, rank: int, facts: dict[str, Any], pid: int) -> Iterator[str]:
    if facts["raised"] != "PeerFailure":
        yield f"not a PeerFailure but {facts['raised']}"
    if facts["peer"] != plan.victim:
        yield f"peer is not {plan.victim}"
    if facts["pid"] != pid:
        yield f"pid is not {pid}"
    if facts["rank"] != rank:
        yield "rank is not its own"
    if not facts["host"] or not facts["cause"]:
        yield "host or cause is missing"
    at_entry = "an earlier call ended" in facts["message"]
    if not at_entry and not facts["operation"]:
        yield "operation is missing"
    if not at_entry and plan.call != "messages" and not facts["sequence"]:
        yield "sequence is missing"
    if f"rank {plan.victim}" not in facts["message"]:
        yield f"no word of rank {plan.victim}"


@contextlib.contextmanager
def trials(quick: bool, seed: int) -> Iterator[Iterator[Trial]]:
    plans = (plan(number, seed) for number in range(QUICK if quick else FULL))
    yield (Trial(each.name, partial(run, each)) for each in plans)
