"""SIGSTOP: a slow rank is not a dead one.

A long deadline outlasts the stop. A short one names the stopped rank, and the group stays usable.
"""

from __future__ import annotations

import contextlib
import random
import signal
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial

from .commands import Call, complaint, enter, joined_world, must_work
from .limits import Ledger, Limit, Trial
from .world import World

NAME = "stopping"
LIMITS = (
    Limit("deadline to CollectiveTimeout on the others", "overrun", 1.0, "max"),
    Limit("SIGCONT to the stopped rank's raise", "woken", 1.0, "max"),
    Limit("calls that ended otherwise", "otherwise"),
    Limit("groups that were not usable afterwards", "unusable"),
    Limit("hangs and crashes", "hang"),
)
LONG_S, SHORT_S = 30.0, 2.0
STOPPED_S, QUICK_STOPPED_S = 5.0, 2.0
MEDIUM = (4 << 20) // 8  # elements: more than is sent without the receiver's consent


@dataclass(frozen=True)
class Plan:
    size: int
    stopped: int
    call: Call
    stopped_s: float = 0  # 0: until the other ranks have given up
    delay_s: float = 0

    @property
    def name(self) -> str:
        until = f"for-{self.stopped_s:g}s" if self.stopped_s else "until-the-deadline"
        return f"{self.call.name}[{self.call.count}]-{self.stopped}-of-{self.size}-{until}"


def outlast(plan: Plan, ledger: Ledger) -> None:
    """The other ranks wait, and every result is right."""
    with joined_world(plan.size) as world:
        world.send(["loop", plan.call.count, LONG_S])
        world.expect("loops")
        world.pause(plan.delay_s)
        world.signal(plan.stopped, signal.SIGSTOP)
        world.pause(plan.stopped_s)
        world.signal(plan.stopped, signal.SIGCONT)
        world.pause(plan.delay_s)
        world.send("end the loop", [0])
        rounds = {event["rounds"] for event in world.expect("looped").values()}
        ledger.require("otherwise", len(rounds) == 1, f"{plan}: {rounds}")
        must_work(world, ledger, resync=False, what=plan)


def give_up(plan: Plan, ledger: Ledger) -> None:
    others = [rank for rank in range(plan.size) if rank != plan.stopped]
    with joined_world(plan.size) as world:
        its_call = replace(plan.call, timeout=LONG_S)
        if plan.call.count == MEDIUM:  # in the call, which cannot complete without the other ranks
            enter(world, its_call, [plan.stopped])
            world.until_blocked([plan.stopped])
            world.signal(plan.stopped, signal.SIGSTOP)
        else:  # just before the call, because it would send all its data at once
            world.signal(plan.stopped, signal.SIGSTOP)
            world.send(["call", asdict(its_call)], [plan.stopped])
        give_up_on_it(world, plan, others, ledger)
        woken = world.signal(plan.stopped, signal.SIGCONT)
        if plan.call.count != MEDIUM:
            world.expect("enters", [plan.stopped])
        event = world.expect("outcome", [plan.stopped])[plan.stopped]
        ledger.measure("woken", event["ended"] - woken)
        what = complaint(event, "CollectiveTimeout", None)
        if plan.call.count != MEDIUM and event["raised"] is None:
            what = ""  # it had received all that it needed before the other ranks gave up
        ledger.require("otherwise", not what, f"{plan}\nthe stopped rank {what}: {event.facts}")
        must_work(world, ledger, resync=plan.call.what == "broadcast", what=plan)


def give_up_on_it(world: World, plan: Plan, others: list[int], ledger: Ledger) -> None:
    enter(world, plan.call, others)
    for rank, event in world.expect("outcome", others).items():
        ledger.measure("overrun", event["ended"] - event["began"] - SHORT_S)
        what = complaint(event, "CollectiveTimeout", plan.stopped)
        ledger.require("otherwise", not what, f"{plan}\nrank {rank} {what}: {event.facts}")


def plans(quick: bool, rng: random.Random) -> Iterator[Plan]:
    def stop(size: int, call: Call, stopped_s: float = 0) -> Plan:
        stopped = rng.randrange(size)
        if call.what == "broadcast":
            call = replace(call, root=stopped)
        return Plan(size, stopped, replace(call, timeout=SHORT_S), stopped_s, rng.uniform(0.05, 0.2))

    if quick:
        yield stop(3, Call("allreduce", MEDIUM), QUICK_STOPPED_S)
        yield stop(3, Call("allreduce"))
        return
    for count in (10, MEDIUM):
        yield stop(3, Call("allreduce", count), STOPPED_S)
    for size in (2, 3, 4):
        yield stop(size, Call("allreduce"))
        yield stop(size, Call("allreduce", MEDIUM))
        yield stop(size, Call("barrier"))
        yield stop(size, Call("broadcast", MEDIUM))


@contextlib.contextmanager
def trials(quick: bool, seed: int) -> Iterator[Iterator[Trial]]:
    drawn = plans(quick, random.Random(f"{seed}/{NAME}"))
    yield (Trial(plan.name, partial(outlast if plan.stopped_s else give_up, plan)) for plan in drawn)
