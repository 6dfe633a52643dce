"""Ranks started by Open MPI's mpirun, version 4 or 5."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from pycollective.bootstrap.detect.variables import rank_of, require
from pycollective.bootstrap.kvs.kvs import Kvs
from pycollective.bootstrap.placement import Placement
from pycollective.bootstrap.single import alone
from pycollective.errors import InvalidArgument

RANK, SIZE = "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"
LOCAL_RANK, LOCAL_SIZE = "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"
NAMES = (RANK, SIZE, LOCAL_RANK, LOCAL_SIZE)


def detect(env: Mapping[str, str]) -> Placement | None:
    if not env.get(RANK) and not env.get(SIZE):
        return None
    require(env, (RANK, SIZE), "Open MPI")
    rank, size = rank_of(env, RANK, SIZE)
    if size == 1:
        return alone("Open MPI", RANK, SIZE)
    require(env, NAMES, "Open MPI")
    local_rank, local_size = rank_of(env, LOCAL_RANK, LOCAL_SIZE)
    if not env.get("PMIX_NAMESPACE"):
        raise InvalidArgument(
            f"{SIZE}={size}, but PMIX_NAMESPACE is not set, so mpirun cannot be asked where rank 0 is: something "
            f"between mpirun and this process (ssh, sudo, env -i, a container) has dropped the PMIX_* variables. Pass "
            f"them on, let mpirun start the process itself, or set RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and "
            f"MASTER_PORT"
        )
    return Placement(
        rank=rank,
        size=size,
        local_rank=local_rank,
        local_size=local_size,
        launcher="Open MPI",
        one_host=local_size == size,
        kvs=functools.partial(kvs, dict(env)),
        job=env["PMIX_NAMESPACE"],
        variables=(*NAMES, "PMIX_NAMESPACE"),
    )


def kvs(env: Mapping[str, str]) -> Kvs:
    from pycollective.bootstrap.kvs.open_once import open_once
    from pycollective.bootstrap.kvs.pmix import Pmix

    return open_once("PMIx of Open MPI", lambda: Pmix("PMIx of Open MPI", env))
