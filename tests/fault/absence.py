"""A rank that never joins a call: each waiting rank names it and its position at the deadline."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from .commands import (
    COLLECTIVES,
    LARGE,
    ROOTED,
    STANDS,
    Call,
    complaint,
    enter,
    joined_world,
    must_work,
    run_commands,
)
from .limits import Ledger, Limit, Trial
from .world import Event, World

NAME = "absence"
LIMITS = (
    Limit("deadline to CollectiveTimeout, init", "init", 1.0, "max"),
    Limit("deadline to CollectiveTimeout, calls", "overrun", 1.0, "max"),
    Limit("the absent rank's entry to its raise", "late", 1.0, "max"),
    Limit("absent rank or its place not named", "words"),
    Limit("calls that ended otherwise", "otherwise"),
    Limit("groups that were not usable afterwards", "unusable"),
    Limit("hangs and crashes", "hang"),
)
FULL_S, QUICK_S = 1.0, 0.5  # deadlines
BEYOND_S = 1.2  # how much longer than the deadline the absent rank cannot be inspected


@dataclass(frozen=True)
class Plan:
    size: int
    absent: int
    call: Call
    stands: str

    @property
    def name(self) -> str:
        return f"{self.call.name}-{self.absent}-of-{self.size}-{self.stands or 'not-started'}"


def plans(quick: bool, rng: random.Random) -> Iterator[Plan]:
    timeout = QUICK_S if quick else FULL_S
    for absent in range(3):
        yield Plan(3, absent, Call("init", timeout=timeout), "")
    for what in (*COLLECTIVES, "send", "recv"):
        for stands in STANDS:
            if quick and what != "allreduce" and rng.random() < 2 / 3:
                continue
            size = rng.randint(2, 4)
            absent, waiting = rng.sample(range(size), 2)
            root = absent if what == "broadcast" else waiting
            count = LARGE if what == "send" else 1000
            yield Plan(size, absent, Call(what, count, root, absent, timeout), stands)


def run_init(plan: Plan, ledger: Ledger) -> None:
    with World(plan.size, run_commands, missing=[plan.absent]) as world:
        present = list(world.ranks)
        enter(world, plan.call, present)
        for rank, event in world.expect("outcome", present).items():
            ledger.measure("init", event["ended"] - event["began"] - plan.call.timeout)
            what = complaint(event, "CollectiveTimeout", None)
            ledger.require("otherwise", not what, f"{plan}\nrank {rank} {what}: {event.facts}")
            named = event["peer"] == plan.absent or f"rank {plan.absent}" in event["message"]
            ledger.require("words", named, f"{plan}\nrank {rank}: {event.facts}")


def run(plan: Plan, ledger: Ledger) -> None:
    if plan.call.what == "init":
        run_init(plan, ledger)
        return
    collective = plan.call.what in COLLECTIVES
    with joined_world(plan.size) as world:
        must_work(world, ledger, resync=False, what=plan)  # so that there is a last completed call
        world.send(["stand", plan.stands, plan.call.timeout + BEYOND_S], [plan.absent])
        world.expect("stands", [plan.absent])
        present = [rank for rank in range(plan.size) if rank != plan.absent]
        callers = present if collective else present[:1]
        enter(world, plan.call, callers)
        world.until_blocked(callers)
        waiting = [rank for rank in callers if not world.ranks[rank].pending]
        ledger.require("otherwise", waiting, f"{plan}: no rank waits")
        for rank, event in world.expect("outcome", callers).items():
            if rank in waiting:
                check(plan, rank, event, ledger)
        if collective:
            come_late(world, plan, ledger)
        must_work(world, ledger, resync=plan.call.what in ROOTED, what=plan)


def check(plan: Plan, rank: int, event: Event, ledger: Ledger) -> None:
    """Checks how the call of a rank that waited has ended."""
    ledger.measure("overrun", event["ended"] - event["began"] - plan.call.timeout)
    if event["raised"] != "CollectiveTimeout":
        ledger.fault("otherwise", f"{plan}\nrank {rank}: {event.facts}")
        return
    what = complaint(event, "CollectiveTimeout", plan.absent)
    # The position of a rank that keeps the GIL is not readable, so the message names the GIL.
    place = "GIL" if plan.stands == "stand_with_the_gil" else plan.stands
    for word in ("commands.py:", place):
        if word not in event["message"]:
            what = what or f"no word of {word}"
    ledger.require("words", not what, f"{plan}\nrank {rank}: {what}\n{event['message']}")


def come_late(world: World, plan: Plan, ledger: Ledger) -> None:
    """The absent rank makes the call that all other ranks have abandoned."""
    if plan.stands == "stand_in_a_loop":
        world.send(["stand", "stand_in_sleep", 0], [plan.absent])  # ends the loop
        world.expect("stands", [plan.absent])
    world.until_idle(list(world.ranks))
    enter(world, replace(plan.call, timeout=20), [plan.absent])
    event = world.expect("outcome", [plan.absent])[plan.absent]
    ledger.measure("late", event["ended"] - event["began"])
    what = complaint(event, "CollectiveTimeout", None)
    ledger.require("otherwise", not what, f"{plan}\nthe late rank {plan.absent} {what}: {event.facts}")


@contextlib.contextmanager
def trials(quick: bool, seed: int) -> Iterator[Iterator[Trial]]:
    drawn = plans(quick, random.Random(f"{seed}/{NAME}"))
    yield (Trial(plan.name, partial(run, plan)) for plan in drawn)
