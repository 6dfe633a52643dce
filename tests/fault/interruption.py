"""Ctrl-C in every blocking call: KeyboardInterrupt there, PeerInterrupted on the other ranks.

The group stays usable.
"""

from __future__ import annotations

import contextlib
import random
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from .commands import (
    COLLECTIVES,
    LARGE,
    ROOTED,
    Call,
    complaint,
    enter,
    joined_world,
    must_work,
    run_commands,
)
from .limits import Ledger, Limit, Trial
from .world import World

NAME = "interruption"
LIMITS = (
    Limit("signal to KeyboardInterrupt", "interrupt", 0.2, "max"),
    Limit("signal to PeerInterrupted on the others", "others", 1.0, "max"),
    Limit("late rank's entry to its PeerInterrupted", "late", 1.0, "max"),
    Limit("calls that ended otherwise", "otherwise"),
    Limit("groups that were not usable afterwards", "unusable"),
    Limit("hangs and crashes", "hang"),
)
FULL, QUICK = 6, 1  # how often each
SIZES = (3, 2, 4)
GONE = ("PeerExited", "PeerFailure")
TRIES = 8  # to interrupt a large call before it completes


@dataclass(frozen=True)
class Plan:
    call: Call
    size: int
    interrupted: int
    absent: int  # does not enter the call before the signal
    stop_after_s: float = -1  # if not negative: it enters the call, and is stopped in the middle

    @property
    def name(self) -> str:
        how = "absent" if self.stop_after_s < 0 else f"stopped-after-{1000 * self.stop_after_s:.1f}ms"
        return f"{self.call.name}-{self.interrupted}-of-{self.size}-{how}-{self.absent}"


def plans(number: int, seed: int) -> Iterator[Plan]:
    rng = random.Random(f"{seed}/{NAME}/{number}")
    size = SIZES[number % len(SIZES)]
    first, second = rng.sample(range(size), 2)
    for count in (1000, LARGE):
        yield Plan(Call("allreduce", count), size, first, second)
        yield Plan(Call("broadcast", count, root=second), size, first, second)
        yield Plan(Call("reduce", count, root=first), size, first, second)
    yield Plan(Call("allreduce", LARGE), size, first, second, rng.uniform(0, 0.05))
    yield Plan(Call("barrier"), size, first, second)
    yield Plan(Call("send", LARGE, peer=second), size, first, second)
    yield Plan(Call("recv", peer=second), size, first, second)
    yield Plan(Call("resync"), size, first, second)
    yield Plan(Call("shutdown"), size, first, second)
    yield Plan(Call("init"), 2, 0, 1)
    yield Plan(Call("init"), 2, 1, 0)
    yield Plan(Call("init"), 3, 1, 2)


def interrupt(world: World, plan: Plan, ledger: Ledger) -> float:
    sent = world.signal(plan.interrupted, signal.SIGINT)
    event = world.expect("outcome", [plan.interrupted])[plan.interrupted]
    ledger.measure("interrupt", event["ended"] - sent)
    what = complaint(event, "KeyboardInterrupt", None)
    ledger.require("otherwise", not what, f"{plan}\nthe interrupted rank {what}: {event.facts}")
    return sent


def run(plan: Plan, ledger: Ledger) -> None:
    if plan.call.what == "init":
        run_init(plan, ledger)
        return
    with joined_world(plan.size) as world:
        if plan.call.what in COLLECTIVES:
            run_collective(world, plan, ledger)
        elif plan.call.what == "resync":
            run_resync(world, plan, ledger)
        elif plan.call.what == "shutdown":
            run_shutdown(world, plan, ledger)
            return
        else:
            enter(world, plan.call, [plan.interrupted])
            world.until_blocked([plan.interrupted])
            interrupt(world, plan, ledger)
        must_work(world, ledger, resync=plan.call.what in ROOTED, what=plan)


def run_init(plan: Plan, ledger: Ledger) -> None:
    with World(plan.size, run_commands, missing=[plan.absent]) as world:
        enter(world, plan.call, list(world.ranks))
        world.until_blocked(list(world.ranks))
        interrupt(world, plan, ledger)


def run_collective(world: World, plan: Plan, ledger: Ledger) -> None:
    present = [rank for rank in range(plan.size) if rank != plan.absent]
    if plan.stop_after_s < 0:
        enter(world, plan.call, present)
    else:
        stop_in_the_middle(world, plan, present)
    world.until_blocked(present)
    waiting = [rank for rank in present if rank != plan.interrupted and not world.ranks[rank].pending]
    sent = interrupt(world, plan, ledger)
    for rank, event in world.expect("outcome", waiting).items():
        ledger.measure("others", event["ended"] - sent)
        what = complaint(event, "PeerInterrupted", plan.interrupted)
        ledger.require("otherwise", not what, f"{plan}\nrank {rank} {what}: {event.facts}")
    done = [rank for rank in present if rank not in (plan.interrupted, *waiting)]
    for rank, event in world.expect("outcome", done).items():
        ledger.require("otherwise", event["raised"] is None, f"{plan}\nrank {rank}: {event.facts}")

    if plan.stop_after_s < 0:
        world.until_idle([plan.interrupted, plan.absent])
        enter(world, plan.call, [plan.absent])
    else:
        world.signal(plan.absent, signal.SIGCONT)
    event = world.expect("outcome", [plan.absent])[plan.absent]
    if plan.stop_after_s < 0:
        ledger.measure("late", event["ended"] - event["began"])
    elif event["raised"] is None:  # it had received all that it needed before it was stopped
        return
    what = complaint(event, "PeerInterrupted", plan.interrupted)
    ledger.require("otherwise", not what, f"{plan}\nthe late rank {plan.absent} {what}: {event.facts}")


def stop_in_the_middle(world: World, plan: Plan, present: list[int]) -> None:
    """Makes all ranks enter the call, and stops one of them before the call completes.

    A call that completed before is tried again, and stopped sooner.
    """
    for attempt in range(TRIES):
        enter(world, plan.call, list(world.ranks))
        world.pause(plan.stop_after_s / (1 + attempt))
        world.signal(plan.absent, signal.SIGSTOP)
        world.until_blocked(present)
        if not any(world.ranks[rank].pending for rank in present):
            return
        world.signal(plan.absent, signal.SIGCONT)
        world.expect("outcome")
    raise AssertionError(f"{plan}: no call was still running when it was to be interrupted")


def run_resync(world: World, plan: Plan, ledger: Ledger) -> None:
    others = [rank for rank in range(plan.size) if rank not in (plan.interrupted, plan.absent)]
    enter(world, plan.call, [*others, plan.interrupted])
    world.until_blocked([*others, plan.interrupted])
    interrupt(world, plan, ledger)
    world.until_idle([plan.interrupted, plan.absent])
    # the other ranks are still in their resync, which retries until all ranks have joined
    again = [plan.interrupted, plan.absent]
    enter(world, plan.call, again)
    for rank, event in world.expect("outcome").items():
        ledger.require("otherwise", event["raised"] is None, f"{plan}\nresync on rank {rank}: {event.facts}")


def run_shutdown(world: World, plan: Plan, ledger: Ledger) -> None:
    """A rank that is interrupted in shutdown() has left, and calls that need it report so."""
    enter(world, plan.call, [plan.interrupted])
    world.until_blocked([plan.interrupted])
    interrupt(world, plan, ledger)
    others = [rank for rank in range(plan.size) if rank != plan.interrupted]
    # the call that met the interrupted shutdown, and the next one
    for accepted in (("PeerInterrupted", *GONE), GONE):
        enter(world, Call("allreduce"), others)
        for rank, event in world.expect("outcome", others).items():
            named = event["raised"] in accepted and event["peer"] == plan.interrupted
            ledger.require("otherwise", named, f"{plan}\nrank {rank}: {event.facts}")
            ledger.measure("late", event["ended"] - event["began"])


@contextlib.contextmanager
def trials(quick: bool, seed: int) -> Iterator[Iterator[Trial]]:
    numbers = range(QUICK if quick else FULL)
    yield (
        Trial(f"{number}-{plan.name}", partial(run, plan))
        for number in numbers
        for plan in plans(number, seed)
    )
