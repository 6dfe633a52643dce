"""Ranks started by torchrun, by one agent or by several."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from pycollective.bootstrap.detect.torch_variables import DESCRIPTION, default_store, place
from pycollective.bootstrap.detect.variables import integer, require
from pycollective.bootstrap.kvs.kvs import Kvs
from pycollective.bootstrap.placement import Placement


def detect(env: Mapping[str, str]) -> Placement | None:
    run_id = env.get("TORCHELASTIC_RUN_ID")
    if not run_id:
        return None
    require(env, ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"), DESCRIPTION)
    # TORCHELASTIC_RESTART_COUNT is not used. Each agent counts its own restarts, so the count may
    # differ between ranks of one world.
    return place(env, "torchrun", kvs_of(env, run_id), run_id)


def kvs_of(env: Mapping[str, str], run_id: str) -> Callable[[], Kvs] | None:
    """Return an opener for the agent's store or that of torch.distributed, or None.

    The agent's store is used if all ranks can connect to it.
    """
    if env.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return functools.partial(
            agent_store, env["MASTER_ADDR"], integer(env, "MASTER_PORT"), f"{run_id}/{env['WORLD_SIZE']}"
        )
    return default_store(env, run_id)


def agent_store(host: str, port: int, space: str) -> Kvs:
    from pycollective.bootstrap.kvs.torch_store import TorchStore

    return TorchStore(host, port, space)
