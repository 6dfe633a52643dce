"""Ranks started by srun, and shells of an allocation in which srun has started no ranks."""

from __future__ import annotations

from collections.abc import Mapping

from pycollective.bootstrap.addresses import join, store_hosts
from pycollective.bootstrap.detect.derived_ports import ports
from pycollective.bootstrap.detect.variables import integer, rank_of, require
from pycollective.bootstrap.hostlist import expand, tasks_per_node
from pycollective.bootstrap.placement import Placement
from pycollective.bootstrap.single import alone
from pycollective.errors import InvalidArgument

RANK, SIZE, LOCAL_RANK = "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"
NODES, NODE, TASKS = "SLURM_STEP_NODELIST", "SLURM_NODEID", "SLURM_STEP_TASKS_PER_NODE"
JOB, STEP = "SLURM_JOB_ID", "SLURM_STEP_ID"
NAMES = (RANK, SIZE, LOCAL_RANK, NODE, NODES, TASKS, JOB, STEP)
# Slurm's own steps, such as an interactive shell, have this number or a higher one
FIRST_SPECIAL_STEP = 0xFFFFFFF0


def detect(env: Mapping[str, str]) -> Placement | None:
    """Detect srun, which has no KVS.

    Rank 0's store is on the first host of the step, at a port derived from job and step.
    """
    if not in_step(env):
        return None
    require(env, NAMES, "srun")
    rank, size = rank_of(env, RANK, SIZE)
    if size == 1:
        return alone("Slurm", RANK, SIZE)
    local_rank, local_size = local_place(env)
    one_host = local_size == size
    job = f"slurm/{env.get('SLURM_CLUSTER_NAME', '')}/{env[JOB]}.{env[STEP]}/{size}"
    hosts = (
        ["127.0.0.1"]
        if one_host
        else store_hosts(expand(env[NODES])[0], one_host=False, what="Slurm's node ")
    )
    return Placement(
        rank=rank,
        size=size,
        local_rank=local_rank,
        local_size=local_size,
        launcher="Slurm",
        one_host=one_host,
        store_addresses=tuple(join(host, port) for port in ports(env, job) for host in hosts),
        hosts_store=rank == 0,
        job=job,
        variables=NAMES,
    )


def in_step(env: Mapping[str, str]) -> bool:
    """Return whether srun has started this process as a task."""
    return bool(env.get(STEP) and env.get(RANK)) and integer(env, STEP) < FIRST_SPECIAL_STEP


def local_place(env: Mapping[str, str]) -> tuple[int, int]:
    tasks, node, local_rank = tasks_per_node(env[TASKS]), integer(env, NODE), integer(env, LOCAL_RANK)
    if not 0 <= node < len(tasks) or not 0 <= local_rank < tasks[node]:
        raise InvalidArgument(
            f"{NODE}={node} {LOCAL_RANK}={local_rank} do not fit {TASKS}={env[TASKS]}: is this a job of several "
            f"components? Start all ranks with one srun for one component"
        )
    return local_rank, tasks[node]


def detect_shell(env: Mapping[str, str]) -> Placement | None:
    """Refuse a batch script or the shell of salloc.

    They run once for the whole allocation. Only srun starts ranks in it.
    """
    if not env.get(JOB):
        return None
    per_node = env.get("SLURM_TASKS_PER_NODE", "1")
    tasks = integer(env, "SLURM_NTASKS") if env.get("SLURM_NTASKS") else sum(tasks_per_node(per_node))
    if tasks == 1 or in_step(env):
        return None
    raise InvalidArgument(
        f"{JOB}={env[JOB]}: Slurm has given this job room for {tasks} tasks, but srun has not started this process as "
        f"one of them ({STEP} is not that of an srun). Start the program with `srun -K python script.py`, or set "
        f"PYCOLLECTIVE_LAUNCHER=single for a world of one"
    )
