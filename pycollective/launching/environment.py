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
# set if the launcher displays unfinished lines of the ranks' standard error on a terminal
TERMINAL = PREFIX + "TERMINAL"
# Variables of an outer launcher, which do not apply to the ranks of this launcher.
OUTER = frozenset((*(PREFIX + name for name in PLACE), STORE, KEY_FD, PREFIX + "LAUNCHER", *paddle.OF_PLACE))


@dataclass(frozen=True)
class World:
    """The facts that all ranks of one launch on this host have in common."""

    size: int  # number of ranks on all hosts
    store: str | None  # address of the launcher's rendezvous store; None if rank 0 has the store, at `master`
    master_port: int  # for the program (torch.distributed); pycollective never binds it
    master: str = "127.0.0.1"
    store_port: int = 0  # port of rank 0's store
    first: int = 0  # number of the first rank on this host
    local_size: int = 0  # number of ranks on this host; 0 if all ranks are on it
    attempt: int = 0  # how often the ranks have been restarted

    @property
    def ranks(self) -> range:
        """The ranks on this host."""
        return range(self.first, self.first + (self.local_size or self.size))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def usable_cores() -> int:
    return len(os.sched_getaffinity(0))


def threads_per_rank(env: Mapping[str, str], local_size: int) -> str:
    """Return OMP_NUM_THREADS if the user has set it, else an equal share of the cores."""
    return env.get("OMP_NUM_THREADS", str(max(1, usable_cores() // local_size)))


def rank_environment(base: Mapping[str, str], world: World, rank: int, key_fd: int | None) -> dict[str, str]:
    # The variables of an outer torchrun are removed: they would make torch.distributed use
    # torchrun's agent.
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
    """Add the hook by which breakpoint() in Python ranks uses the launcher's terminal.

    A hook that the user has chosen is kept.
    """
    return {"PYTHONBREAKPOINT": "pycollective.debugger.hook", **base}


def with_terminal(base: Mapping[str, str]) -> dict[str, str]:
    """Set TERMINAL if the launcher's standard error is a terminal, and remove it otherwise.

    A rank cannot determine this, because its own standard error is a pipe.
    """
    env = {name: value for name, value in base.items() if name != TERMINAL}
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    return {**env, TERMINAL: "1"} if is_terminal else env
