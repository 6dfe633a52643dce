"""Ranks that make different calls, in every kind of difference, with any rank as the odd one.

The odd rank is early or late, and the arrays are small or large. One world per number of ranks runs
all its cases one after the other, which shows that the group stays usable after each.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import pycollective as pc

from .limits import Ledger, Limit, Trial
from .rank import Rank, attempt
from .world import Broken, Event, Hang, World

NAME = "mismatch"
LIMITS = (
    Limit("last rank's call to last promised raise", "raise", 1.0, "max"),
    Limit("promised raises that did not come", "silent"),
    Limit("raises of another type, or odd rank or difference not named", "words"),
    Limit("wrong results returned as right", "wrong"),
    Limit("groups that were not usable afterwards", "unusable"),
    Limit("hangs and crashes", "hang"),
)
FROM_ROOT = ("broadcast", "scatter")
TO_ROOT = ("reduce", "gather")
ALONG = ("scan", "exscan")  # from each rank to those after it
ROOTED = FROM_ROOT + TO_ROOT
PARTED = ("allgather", "reduce_scatter", "alltoall", "gather", "scatter")
REDUCING = ("allreduce", "reduce", "reduce_scatter", "scan", "exscan")
COLLECTIVES = ("allreduce", "broadcast", "reduce", "barrier", *PARTED, *ALONG)
ONE_WAY = ROOTED + ALONG  # some ranks need no other rank
OF_LISTS = ("allreduce", "broadcast", "reduce", *ALONG)
EAGER_BYTES = 64 << 10  # a larger message waits for its receive
LARGE = (64 << 20) // 4
CALL_S = 5.0  # deadline of the calls that differ
TAG = 7
TRIES = 3


@dataclass(frozen=True)
class Call:
    collective: str
    count: int = 4
    dtype: str = "float32"
    op: str = "sum"
    root: int = 0
    peer: int = 0
    lengths: Sequence[int] = ()  # of the arrays of a list, `count` in all; none: one array

    @property
    def nbytes(self) -> int:
        return self.count * np.dtype(self.dtype).itemsize

    def needs(self, rank: int, size: int) -> set[int]:
        """Returns the ranks from which this call needs data on that rank."""
        others = set(range(size)) - {rank}
        if self.collective in FROM_ROOT:
            return others & {self.root}
        if self.collective in TO_ROOT:
            return others if rank == self.root else set()
        return set(range(rank)) if self.collective in ALONG else others

    def total(self, size: int) -> int:
        """Returns the number of elements that the ranks compare."""
        return self.count * size if self.collective in PARTED else self.count


@dataclass(frozen=True)
class Case:
    size: int
    kind: str
    usual: Call
    unusual: Call
    odd: int
    odd_first: bool
    strict: bool = False
    sender: int = -1  # of a message; the odd rank is its receiver
    step: str = "resync"  # what follows a rooted call: resync, or at once the next call
    both: bool = False  # each rank makes both calls without waiting, the odd rank in the other order

    @property
    def name(self) -> str:
        order = "early" if self.odd_first else "late"
        strict = "/strict" if self.strict else ""
        what = f"{self.usual.collective}[{self.usual.count}]/{self.kind}"
        pair = f"{self.sender} to {self.odd}" if self.sender >= 0 else f"odd {self.odd}"
        both = "/both" if self.both else ""
        return f"{self.size} ranks{strict}/{what}/{pair} {order}/{self.step}{both}".replace(" ", "-")

    def the_other_calls(self) -> Case:
        """Returns, where both calls are made, what the ranks disagree about in the second."""
        return replace(self, usual=self.unusual, unusual=self.usual, kind=self.usual.collective)

    def call_of(self, rank: int) -> Call | None:
        if self.sender < 0:
            return self.unusual if rank == self.odd else self.usual
        if rank == self.sender:
            return self.usual
        return self.unusual if rank == self.odd else None

    def promised(self) -> set[int]:
        """Returns the ranks that raise in that very call, whatever the algorithms are."""
        if self.sender >= 0:
            return {self.odd, self.sender} if self.usual.nbytes > EAGER_BYTES else {self.odd}
        if self.strict:
            return set(range(self.size))
        return {rank for rank in range(self.size) if self._depends(rank)}

    def _depends(self, rank: int) -> bool:
        call = self.call_of(rank)
        assert call is not None
        needed = call.needs(rank, self.size)
        return (
            bool(needed) if rank == self.odd else self.odd in needed
        )  # the ranks that the odd rank needs make another call

    def words(self) -> list[str]:
        """Returns what a message about this disagreement contains."""
        if self.kind in COLLECTIVES:
            return [self.usual.collective, self.unusual.collective]
        for field in ("dtype", "count", "op"):
            if getattr(self.usual, field) != getattr(self.unusual, field):
                both = self.usual, self.unusual
                return [str(c.total(self.size) if field == "count" else getattr(c, field)) for c in both]
        if self.usual.lengths != self.unusual.lengths:
            return ["list"]
        return [f"root {self.unusual.root}"]


# ---- the kinds of difference


def ways(usual: Call) -> Iterator[tuple[str, Call]]:
    if usual.collective != "barrier":
        yield "dtype of equal size", replace(usual, dtype="int32")
        yield "dtype of other size", replace(usual, dtype="float64")
        yield "dtype of other size, equal bytes", replace(usual, dtype="float64", count=usual.count // 2)
        yield "count", replace(usual, count=usual.count + 1)
        if usual.count < LARGE:
            yield "count, another algorithm", replace(usual, count=usual.count + 100_000)
    if usual.collective in REDUCING:
        yield "op", replace(usual, op="max")
    if usual.collective in ROOTED:
        yield "root", replace(usual, root=1)
    if usual.collective in COLLECTIVES:
        for other in COLLECTIVES:
            if other != usual.collective:
                yield other, replace(usual, collective=other)


def collective_cases(size: int, count: int) -> Iterator[Case]:
    for collective in COLLECTIVES:
        usual = Call(collective, count)
        for (kind, unusual), odd, odd_first in itertools.product(ways(usual), range(size), (True, False)):
            one_way = collective in ONE_WAY or unusual.collective in ONE_WAY
            step = "next" if one_way and (odd + odd_first) % 2 else "resync" if one_way else "none"
            yield Case(size, kind, usual, unusual, odd, odd_first, step=step)


def list_cases(size: int, count: int) -> Iterator[Case]:
    """Lists with as many elements in all, which travel as one array."""
    for collective, odd, odd_first in itertools.product(OF_LISTS, range(size), (True, False)):
        usual = Call(collective, count, lengths=(1, count - 1))
        for kind, lengths in (("lengths", (count - 1, 1)), ("fewer", (count,)), ("no list", ())):
            step = "resync" if collective in ONE_WAY else "none"
            yield Case(size, kind, usual, replace(usual, lengths=lengths), odd, odd_first, step=step)


def order_cases(size: int, count: int) -> Iterator[Case]:
    """Two asynchronous calls, which one rank makes in the other order."""
    for case in collective_cases(size, count):
        if case.kind in COLLECTIVES:
            yield replace(case, both=True)


def message_cases(size: int, count: int) -> Iterator[Case]:
    pairs = {(0, 1), (1, 0), (size - 1, 0), (0, size - 1)}
    for (sender, receiver), odd_first in itertools.product(sorted(pairs), (True, False)):
        usual = Call("send", count, peer=receiver)
        for kind, unusual in ways(usual):
            receive = replace(unusual, collective="recv", peer=sender)
            yield Case(size, kind, usual, receive, receiver, odd_first, sender=sender, step="none")


def all_cases(quick: bool, rng: random.Random) -> Iterator[Case]:
    for size in (2, 3, 4, 5):
        small = [case for count in (4, 1000) for case in collective_cases(size, count)]
        messages = [case for count in (4, 1000, 20_000) for case in message_cases(size, count)]
        large = list(collective_cases(size, LARGE))
        large_messages = list(message_cases(size, LARGE))
        lists = [case for count in (4, 1000) for case in list_cases(size, count)]
        orders = [case for count in (4, 1000) for case in order_cases(size, count)]
        if quick:
            yield from rng.sample(small, 20)
            yield from rng.sample(messages, 5)
            yield from rng.sample(large, 2 if size < 4 else 1)
            yield from rng.sample(lists, 4)
            yield from rng.sample(orders, 5)
        else:
            yield from rng.sample(small, min(len(small), 1200))
            yield from messages
            yield from rng.sample(large, 30 if size in (2, 4) else 12)
            yield from lists
            yield from rng.sample(orders, 200)
        yield from rng.sample(large_messages, 1 if quick else 4)
    for size in (2, 3, 4):
        rooted = [replace(case, strict=True, step="none") for case in collective_cases(size, 4)]
        rooted = [case for case in rooted if {case.usual.collective, case.unusual.collective} & set(ONE_WAY)]
        yield from rng.sample(rooted, 6 if quick else min(len(rooted), 600))


# ---- what a rank does


def usual(call: Callable[[], Any]) -> Any:
    return call()


def unusual(call: Callable[[], Any]) -> Any:
    return call()


def perform(call: Call, x: Any, by: Callable[[Callable[[], Any]], Any], suffix: str = "") -> Any:
    """Makes the call below one frame of ours, which the message names."""
    function = getattr(pc, call.collective + suffix)
    if call.collective == "barrier":
        return by(partial(function, timeout=CALL_S))
    if call.collective in ("allreduce", "reduce_scatter", "scan", "exscan"):
        return by(partial(function, x, call.op, timeout=CALL_S))
    if call.collective == "reduce":
        return by(partial(function, x, call.op, root=call.root, timeout=CALL_S))
    if call.collective in ("broadcast", "gather"):
        return by(partial(function, x, call.root, timeout=CALL_S))
    if call.collective in ("allgather", "alltoall"):
        return by(partial(function, x, timeout=CALL_S))
    if call.collective == "scatter":
        part = np.zeros(call.count, call.dtype)
        return by(partial(function, x, call.root, out=part, timeout=CALL_S))
    return by(partial(function, x, call.peer, tag=TAG, timeout=CALL_S))


def make(
    me: Rank, calls: Sequence[Call], arrays: Sequence[Any], by: Callable[[Callable[[], Any]], Any]
) -> list[dict[str, Any]]:
    """Makes one call, or two without waiting for the first. Returns how each ended."""
    if len(calls) == 1:
        return [ended(me, calls[0], arrays[0], partial(perform, calls[0], arrays[0], by))]
    works = [begun(call, x, by) for call, x in zip(calls, arrays, strict=True)]
    return [ended(me, call, x, work.wait) for call, x, work in zip(calls, arrays, works, strict=True)]


def begun(call: Call, x: Any, by: Callable[[Callable[[], Any]], Any]) -> pc.Work[Any]:
    """Returns the work of the call.

    If the previous call has failed by now and its error was not raised yet, the first attempt
    raises that error.
    """
    try:
        return perform(call, x, by, "_async")
    except pc.CollectiveMismatch:
        return perform(call, x, by, "_async")


def ended(me: Rank, call: Call, x: Any, result: Callable[[], Any]) -> dict[str, Any]:
    results: list[Any] = []
    outcome = attempt(lambda: results.append(result()))
    returned = outcome["raised"] is None
    wrong = returned and not is_right(call, joined(x), joined(results[0]), me.rank, me.size)
    return {"wrong": wrong, **outcome}


def joined(x: Any) -> Any:
    return np.concatenate(x) if isinstance(x, list) else x


def array_of(call: Call, rank: int, size: int) -> Any:
    whole = call.collective in ("reduce_scatter", "alltoall", "scatter")
    x = np.full(call.count * size if whole else call.count, rank + 1, call.dtype)
    return [x[:length].copy() for length in call.lengths] or x


def is_right(call: Call, x: Any, result: Any, rank: int, size: int) -> bool:
    """Returns whether a call that returned has the result of ranks that agree.

    Only the ranks that it needs must agree.
    """
    if call.collective in FROM_ROOT:
        return bool((result == call.root + 1).all())
    if call.collective == "scan":
        return (
            bool((x == (rank + 1) * (rank + 2) // 2).all())
            if call.op == "sum"
            else bool((x == rank + 1).all())
        )
    if call.collective == "exscan" and rank > 0:
        return bool((x == (rank * (rank + 1) // 2 if call.op == "sum" else rank)).all())
    keeps_x = call.collective in ("barrier", "send", "exscan") or not call.needs(rank, size)
    return keeps_x and bool((x == rank + 1).all())


def settle(me: Rank, step: str) -> dict[str, Any]:
    """Resyncs after the case.

    Returns what was raised meanwhile and whether an allreduce is right.
    """
    late: list[str] = []
    # where no rank needs another, the first only detects the mismatch
    for _ in range(2 if step == "next" else 0):
        for _ in range(TRIES):  # a rank that is informed only now repeats the call
            outcome = attempt(partial(pc.barrier, timeout=CALL_S))
            if outcome["raised"] is None:
                break
            late.append(f"{outcome['raised']}: {outcome['message']}")
        me.report("passed")
        me.next_command()
    if step in ("next", "resync"):
        pc.resync(timeout=CALL_S)
    total = pc.allreduce(np.full(1000, me.rank + 1.0), timeout=CALL_S)
    right = bool((total == me.size * (me.size + 1) / 2).all())
    return {"late": late, "right": right}


def member(me: Rank) -> None:
    """The life of one rank: runs cases until the supervisor is gone."""
    me.join()
    me.report("joined")
    while True:
        order = me.next_command()
        if order["calls"]:
            calls = [Call(**given) for given in order["calls"]]
            arrays = [array_of(call, me.rank, me.size) for call in calls]
            me.report("prepared")
            me.next_command()
            me.report("enters")
            for outcome in make(me, calls, arrays, unusual if order["odd"] else usual):
                me.report("outcome", **outcome)
        step = me.next_command()
        outcome = attempt(lambda step=step: me.report("settled", **settle(me, step)))
        if outcome["raised"] is not None:
            me.report("settled", late=[f"{outcome['raised']}: {outcome['message']}"], right=False)


# ---- what the supervisor does


class Worlds:
    """The world of consecutive cases, replaced when the size changes or a case has broken it."""

    def __init__(self) -> None:
        self.key: tuple[int, bool] | None = None
        self.world: World | None = None

    def get(self, case: Case) -> World:
        key = (case.size, case.strict)
        if self.world is None or self.key != key:
            self.close()
            env = {"PYCOLLECTIVE_CHECK": "strict"} if case.strict else {}
            self.key, self.world = key, World(case.size, member, env=env)
            self.world.expect("joined")
        return self.world

    def close(self) -> None:
        if self.world is not None:
            self.world.close()
        self.world = None


def run_case(worlds: Worlds, case: Case, ledger: Ledger) -> None:
    try:
        world = worlds.get(case)
        outcomes = [provoke(world, case)]
        check(case, outcomes[0], ledger)
        if case.both:
            outcomes.append(world.expect("outcome"))
            check(case.the_other_calls(), outcomes[1], ledger)
        world.send(case.step)
        for _ in range(2 if case.step == "next" else 0):
            world.expect("passed")
            world.until_idle(list(world.ranks))
            world.send("go on")
        settled = world.expect("settled")
    except (Hang, Broken) as error:
        worlds.close()
        raise error
    late_reports = [text for event in settled.values() for text in event["late"]]
    if not all(event["right"] for event in settled.values()):
        ledger.fault("unusable", f"{case}\n" + "\n".join(f"rank {r}: {e.facts}" for r, e in settled.items()))
        worlds.close()
    if case.step == "next" and not late_reports:
        raised = [event for each in outcomes for event in each.values() if event["raised"]]
        ledger.require(
            "silent", raised, f"{case}: no rank was informed, neither in the call nor in the next two"
        )


def provoke(world: World, case: Case) -> dict[int, Event]:
    """Every rank makes its call, in the case's order. Returns how the calls ended."""
    calls = {rank: call for rank in range(case.size) if (call := case.call_of(rank)) is not None}
    for rank in range(case.size):
        call = calls.get(rank)
        made = [] if call is None else [asdict(call)]
        if case.both:
            made.append(asdict(case.usual if rank == case.odd else case.unusual))
        world.send({"calls": made, "odd": rank == case.odd}, [rank])
    world.expect("prepared", calls)
    others = [rank for rank in calls if rank != case.odd]
    first, last = ([case.odd], others) if case.odd_first else (others, [case.odd])
    world.send("go", first)
    world.expect("enters", first)
    world.until_blocked(first)
    world.send("go", last)
    world.expect("enters", last)
    return world.expect("outcome", calls)


def check(case: Case, outcomes: dict[int, Event], ledger: Ledger) -> None:
    began = max(event["began"] for event in outcomes.values())
    for rank, event in outcomes.items():
        raised, message = event["raised"], event.facts.get("message", "")
        if raised is None:
            ledger.require("silent", rank not in case.promised(), f"{case}: rank {rank} returned")
            ledger.require("wrong", not event["wrong"], f"{case}: rank {rank} returned a wrong result")
            continue
        if rank in case.promised():
            ledger.measure("raise", event["ended"] - began)
        for what in complaints(case, rank, event):
            ledger.fault(
                "words", f"{case}\nrank {rank} raised {raised} with peer {event['peer']}: {what}\n{message}"
            )
            break


def complaints(case: Case, rank: int, event: Event) -> Iterator[str]:
    message = event.facts["message"]
    if event["raised"] != "CollectiveMismatch":
        yield "not a CollectiveMismatch"
        return
    if event["rank"] != rank:
        yield f"its own rank is not {rank}"
    blamed = case.odd if rank != case.odd else case.sender
    if blamed >= 0:
        if event["peer"] != blamed:
            yield f"peer is not {blamed}"
        if f"rank {blamed}" not in message:
            yield f"no word of rank {blamed}"
    if case.sender >= 0:
        if rank == case.odd:  # the sender only learns that the message was refused
            yield from (f"no word of {word}" for word in case.words() if word not in message)
        return
    yield from (f"no word of {word}" for word in case.words() if word not in message)
    for function in ("usual", "unusual"):
        if f" in {function}" not in message or "mismatch.py:" not in message:
            yield f"no word of where {function}() called"


@contextlib.contextmanager
def trials(quick: bool, seed: int) -> Iterator[Iterator[Trial]]:
    rng = random.Random(f"{seed}/{NAME}")
    worlds = Worlds()
    try:
        yield (Trial(case.name, partial(run_case, worlds, case)) for case in all_cases(quick, rng))
    finally:
        worlds.close()
