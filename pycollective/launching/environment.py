"""The environment variables that a launcher on one host gives to each of its ranks."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class World:
    """What the ranks of one launch on this host have in common."""

    size: int
    store: str  # address of the rendezvous store
    master_port: int  # for the user's own use (torch.distributed); we never bind it


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def usable_cores() -> int:
    return len(os.sched_getaffinity(0))


def rank_environment(base: Mapping[str, str], world: World, rank: int, key_fd: int) -> dict[str, str]:
    # An outer torchrun would make torch.distributed look for its agent; another launcher's name is not ours.
    env = {
        name: value
        for name, value in base.items()
        if not name.startswith("TORCHELASTIC_") and name != "PYCOLLECTIVE_LAUNCHER"
    }
    for name, value in (
        ("RANK", rank),
        ("WORLD_SIZE", world.size),
        ("LOCAL_RANK", rank),
        ("LOCAL_WORLD_SIZE", world.size),
    ):
        env[name] = env["PYCOLLECTIVE_" + name] = str(value)
    env["PYCOLLECTIVE_STORE"] = world.store
    env["PYCOLLECTIVE_KEY_FD"] = str(key_fd)
    env["MASTER_ADDR"] = "127.0.0.1"
    env["MASTER_PORT"] = str(world.master_port)
    env["PYTHONUNBUFFERED"] = "1"
    env["PYTHONFAULTHANDLER"] = "1"
    env.setdefault("OMP_NUM_THREADS", str(max(1, usable_cores() // world.size)))
    return env
