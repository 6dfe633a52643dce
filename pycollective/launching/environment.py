"""The environment variables that a launcher gives to each of its ranks."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from pycollective.bootstrap.detect import paddle

PREFIX = "PYCOLLECTIVE_"
PLACE = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
STORE, KEY_FD, PORT = PREFIX + "STORE", PREFIX + "KEY_FD", PREFIX + "PORT"
ATTEMPT = PREFIX + "RESTART_COUNT"
TERMINAL = PREFIX + "TERMINAL"  # whether the launcher shows unfinished lines of the ranks' standard error
# Another launcher's name is not ours, and an outer launcher's place is not that of our ranks.
OUTER = frozenset((*(PREFIX + name for name in PLACE), STORE, KEY_FD, PREFIX + "LAUNCHER", *paddle.OF_PLACE))


@dataclass(frozen=True)
class World:
    """What the ranks of one launch on this host have in common."""

    size: int  # over all hosts
    store: str | None  # address of the launcher's rendezvous store; None: rank 0 has one, at `master`
    master_port: int  # for the user's own use (torch.distributed); we never bind it
    master: str = "127.0.0.1"
    store_port: int = 0  # of rank 0's store
    first: int = 0  # rank on this host
    local_size: int = 0  # how many there are on this host; 0: all
    attempt: int = 0  # how often they were started before

    @property
    def ranks(self) -> range:
        """Those on this host."""
        return range(self.first, self.first + (self.local_size or self.size))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def usable_cores() -> int:
    return len(os.sched_getaffinity(0))


def threads_per_rank(env: Mapping[str, str], local_size: int) -> str:
    """What the user has set, else a fair share of the cores."""
    return env.get("OMP_NUM_THREADS", str(max(1, usable_cores() // local_size)))


def rank_environment(base: Mapping[str, str], world: World, rank: int, key_fd: int | None) -> dict[str, str]:
    # An outer torchrun would make torch.distributed look for its agent.
    env = {
        name: value
        for name, value in base.items()
        if not name.startswith("TORCHELASTIC_") and name not in OUTER
    }
    place = (rank, world.size, rank - world.first, len(world.ranks))
    env |= {name: str(value) for name, value in zip(PLACE, place, strict=True)}
    env |= paddle.variables_of(rank, world.size, rank - world.first)
    if world.store is not None:
        env |= {PREFIX + name: env[name] for name in PLACE}
        env |= {STORE: world.store, KEY_FD: str(key_fd)}
    else:
        env[PORT] = str(world.store_port)
    env[ATTEMPT] = str(world.attempt)
    env["MASTER_ADDR"] = world.master
    env["MASTER_PORT"] = str(world.master_port)
    env["PYTHONUNBUFFERED"] = "1"
    env["PYTHONFAULTHANDLER"] = "1"
    env["OMP_NUM_THREADS"] = threads_per_rank(env, len(world.ranks))
    return env


def with_debugger(base: Mapping[str, str]) -> dict[str, str]:
    """For ranks of Python: breakpoint() finds the launcher's terminal. What the user has chosen stays."""
    return {"PYTHONBREAKPOINT": "pycollective.debugger.hook", **base}


def with_terminal(base: Mapping[str, str]) -> dict[str, str]:
    """Tells ranks, whose standard error is a pipe, whether a terminal is behind it."""
    env = {name: value for name, value in base.items() if name != TERMINAL}
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    return {**env, TERMINAL: "1"} if is_terminal else env
