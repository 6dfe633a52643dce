"""A process that ends without shutdown(), by every method: its exit status is its own.

The other ranks are informed. Run as a program, this module is one rank of such a world, because the
interpreter's real end is tested here.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

import pycollective as pc

from .limits import Ledger, Limit, Trial
from .rank import Rank, attempt
from .world import World, rank_from_arguments

NAME = "leaving"
END_S = 7.0  # it waits 5 s for the other ranks, may take 1 s more as any call may, and the interpreter ends
LIMITS = (
    Limit("leaving to the process's end", "end", END_S, "max"),
    Limit("leaving to the others' raise", "informed", 1.0, "max"),
    Limit("exit statuses that changed", "status"),
    Limit("calls that ended otherwise", "otherwise"),
    Limit("hangs and crashes", "hang"),
)
SIZE, LEAVER = 3, 1
STATUS = {  # how to leave, and how the process then ends
    "return": 0,
    "exit": 3,
    "raise": 1,
    "os-exit": 4,
    "daemon-in-recv": 0,
    "daemon-in-allreduce": 0,
    "handler-exits-in-recv": 5,
    "sigterm-in-recv": -signal.SIGTERM,
}
TOGETHER = "all-return"
QUICK_ALONE = ("return", "os-exit")


# ---- what a rank does


def exit_from_handler(*_: object) -> None:
    sys.exit(5)


def leave(me: Rank, how: str) -> None:
    if how == "exit":
        sys.exit(3)
    if how == "raise":
        raise ValueError("the program's own error")
    if how == "os-exit":
        os._exit(4)
    if how.startswith("daemon"):
        x = np.ones(8)
        begun = threading.Event()

        def call() -> None:
            begun.set()
            with contextlib.suppress(pc.CollectiveError):
                _ = pc.allreduce(x) if how == "daemon-in-allreduce" else pc.recv(x, 0)

        threading.Thread(target=call, daemon=True).start()
        begun.wait()
    if how.endswith("in-recv") and not how.startswith("daemon"):
        if how == "handler-exits-in-recv":
            signal.signal(signal.SIGTERM, exit_from_handler)
        me.report("enters")
        pc.recv(np.ones(8), 0)


def main(me: Rank) -> None:
    me.join()
    me.report("joined")
    how = me.next_command()
    if how == TOGETHER:
        pc.allreduce(np.ones(8))
    elif me.rank == LEAVER:
        leave(me, how)
    else:
        me.report("enters")
        outcome = attempt(partial(pc.allreduce, np.ones(8), timeout=30))
        me.report("outcome", **outcome)
        me.next_command()


# ---- what the supervisor does


def start() -> World:
    tests = str(Path(__file__).parent.parent)
    env = {"PYTHONPATH": os.pathsep.join(filter(None, [tests, os.environ.get("PYTHONPATH")]))}
    world = World(SIZE, command=[sys.executable, "-m", "fault.leaving"], env=env)
    try:
        world.expect("joined")
    except BaseException:
        world.close()
        raise
    return world


def run(how: str, others_wait: bool, ledger: Ledger) -> None:
    """Runs one case.

    `others_wait`: the other ranks are in a call before it leaves; else they enter one afterwards.
    """
    others = [rank for rank in range(SIZE) if rank != LEAVER]
    with start() as world:
        if others_wait:
            world.send(how, others)
            world.expect("enters", others)
            world.until_blocked(others)
        began = world.now()
        world.send(how, [LEAVER])
        if STATUS[how] < 0 or how.startswith("handler"):
            world.expect("enters", [LEAVER])
            world.until_blocked([LEAVER])
            began = world.signal(LEAVER, signal.SIGTERM)
        status = world.exit_statuses([LEAVER])[LEAVER]
        ledger.measure("end", world.now() - began)
        ledger.require(
            "status", status == STATUS[how], f"{how}: exit status {status}\n{world.last_words(LEAVER)}"
        )
        if not others_wait:
            world.until_idle(others)
            world.send(how, others)
            world.expect("enters", others)
        for rank, event in world.expect("outcome", others).items():
            ledger.measure("informed", event["ended"] - max(began, event["began"]))
            gone = event["raised"] in ("PeerExited", "PeerFailure") and event["peer"] == LEAVER
            ledger.require("otherwise", gone, f"{how}\nrank {rank}: {event.facts}")
        world.send("that is all", others)
        statuses = world.exit_statuses(others)
        ledger.require(
            "status", set(statuses.values()) == {0}, f"{how}: the others' exit statuses: {statuses}"
        )


def leave_together(ledger: Ledger) -> None:
    with start() as world:
        began = world.now()
        world.send(TOGETHER)
        statuses = world.exit_statuses()
        ledger.measure("end", world.now() - began)
        words = "\n".join(world.last_words(rank) for rank in range(SIZE))
        ledger.require("status", set(statuses.values()) == {0} and not words.strip(), f"{statuses}\n{words}")


@contextlib.contextmanager
def trials(quick: bool, seed: int) -> Iterator[Iterator[Trial]]:
    del seed  # the cases do not depend on it
    ways = [
        (how, others_wait)
        for how in STATUS
        for others_wait in (True, False)
        # it has made its part of their call, which completes
        if not (others_wait and how == "daemon-in-allreduce")
        # most leaving ranks wait 5 s for the other ranks
        and not (quick and not others_wait and how not in QUICK_ALONE)
    ]
    together = [Trial(TOGETHER, leave_together)]
    alone = [
        Trial(
            f"{how}-{'while-others-wait' if others_wait else 'before-others-call'}",
            partial(run, how, others_wait),
        )
        for how, others_wait in ways
    ]
    yield iter(together + alone)


if __name__ == "__main__":
    main(rank_from_arguments())
