"""Ranks started by `srun --mpi=pmi2`, detected like those of plain srun. They have a KVS."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from pycollective.bootstrap.detect import slurm
from pycollective.bootstrap.detect.hydra import FD, LOCAL_RANK, RANK, SIZE, open_descriptor
from pycollective.bootstrap.detect.variables import rank_of, require
from pycollective.bootstrap.kvs.kvs import Kvs
from pycollective.bootstrap.placement import Placement
from pycollective.bootstrap.single import alone

NAMES = (FD, RANK, SIZE, "PMI_JOBID", slurm.LOCAL_RANK, slurm.NODE, slurm.TASKS)


def detect(env: Mapping[str, str]) -> Placement | None:
    # If hydra runs inside a Slurm job, Slurm's variables are set too, but they describe hydra's
    # launcher process and not this rank.
    if not env.get(FD) or not env.get("PMI_JOBID") or env.get(LOCAL_RANK) or not env.get(slurm.RANK):
        return None
    require(env, NAMES, "srun --mpi=pmi2")
    rank, size = rank_of(env, RANK, SIZE)
    if size == 1:
        return alone("Slurm (PMI-2)", RANK, SIZE)
    local_rank, local_size = slurm.local_place(env)
    return Placement(
        rank=rank,
        size=size,
        local_rank=local_rank,
        local_size=local_size,
        launcher="Slurm (PMI-2)",
        one_host=local_size == size,
        kvs=functools.partial(kvs, open_descriptor(env, size), env["PMI_JOBID"], rank),
        job=env["PMI_JOBID"],
        variables=NAMES,
    )


def kvs(fd: int, job: str, rank: int) -> Kvs:
    from pycollective.bootstrap.kvs.open_once import open_once
    from pycollective.bootstrap.kvs.pmi2 import Pmi2

    return open_once(f"PMI-2 of Slurm (PMI_FD={fd})", lambda: Pmi2(fd, "PMI-2 of Slurm", job=job, rank=rank))
