"""Ranks started by hydra, the mpiexec of MPICH and of Intel MPI."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping

from pycollective.bootstrap.detect.variables import integer, rank_of, require
from pycollective.bootstrap.kvs.kvs import Kvs
from pycollective.bootstrap.placement import Placement
from pycollective.bootstrap.single import alone
from pycollective.errors import InvalidArgument, Unsupported

RANK, SIZE, FD = "PMI_RANK", "PMI_SIZE", "PMI_FD"
LOCAL_RANK, LOCAL_SIZE = "MPI_LOCALRANKID", "MPI_LOCALNRANKS"
NAMES = (RANK, SIZE, FD, LOCAL_RANK, LOCAL_SIZE)


def detect(env: Mapping[str, str]) -> Placement | None:
    if env.get("PMI_PORT") and not env.get(FD):
        raise Unsupported(
            f"PMI_PORT={env['PMI_PORT']} is set and PMI_FD is not: pycollective speaks to mpiexec through PMI_FD only. "
            f"Start mpiexec without -pmi-port"
        )
    if not any(env.get(name) for name in (RANK, SIZE, FD)):
        return None
    require(env, (RANK, SIZE), "mpiexec of MPICH or Intel MPI")
    rank, size = rank_of(env, RANK, SIZE)
    launcher = "Intel MPI" if env.get("I_MPI_HYDRA_UUID") else "MPICH"
    if size == 1:
        return alone(launcher, RANK, SIZE)
    fd = open_descriptor(env, size)
    require(env, NAMES, "mpiexec of MPICH or Intel MPI")
    local_rank, local_size = rank_of(env, LOCAL_RANK, LOCAL_SIZE)
    return Placement(
        rank=rank,
        size=size,
        local_rank=local_rank,
        local_size=local_size,
        launcher=launcher,
        one_host=local_size == size,
        kvs=functools.partial(kvs, fd, f"PMI-1 of {launcher}"),
        job=f"hydra/{fd}",
        variables=NAMES,
    )


def open_descriptor(env: Mapping[str, str], size: int) -> int:
    """Return the descriptor in PMI_FD. Raises InvalidArgument if it is missing or not open."""
    if not env.get(FD):
        raise InvalidArgument(
            f"PMI_SIZE={size}, but PMI_FD is not set, so the launcher cannot be asked where rank 0 is. Start with the "
            f"mpiexec of MPICH or Intel MPI; under Slurm with `srun --mpi=pmi2`, or set PYCOLLECTIVE_LAUNCHER=slurm"
        )
    fd = integer(env, FD)
    try:
        os.fstat(fd)
    except (OSError, OverflowError):
        raise InvalidArgument(
            f"PMI_FD={fd} is not open in this process. A process that a rank starts is not a rank itself: start it "
            f"without the PMI_* variables. A wrapper that starts a rank must keep that descriptor open (subprocess: "
            f"pass_fds=...)"
        ) from None
    return fd


def kvs(fd: int, name: str) -> Kvs:
    from pycollective.bootstrap.kvs.open_once import open_once
    from pycollective.bootstrap.kvs.pmi1 import Pmi1

    return open_once(f"{name} (PMI_FD={fd})", lambda: Pmi1(fd, name))
