"""RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT: set by torchrun or by hand."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

from pycollective.bootstrap.addresses import candidates, join, opened_besides, other_spellings, store_hosts
from pycollective.bootstrap.detect.derived_ports import ports
from pycollective.bootstrap.detect.variables import integer, rank_of, require
from pycollective.bootstrap.kvs.kvs import Kvs
from pycollective.bootstrap.placement import Placement
from pycollective.bootstrap.single import alone
from pycollective.errors import InvalidArgument

NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
DESCRIPTION = " ".join(NAMES)


def detect(env: Mapping[str, str]) -> Placement | None:
    """Detect variables that were set by hand.

    Both RANK and LOCAL_RANK are required. LOCAL_RANK alone is often set by other launchers, and
    RANK alone may count machines (in pods).
    """
    if not env.get("RANK") or not env.get("LOCAL_RANK"):
        return None
    return place(env, "torch variables", default_store(env))


def detect_part(env: Mapping[str, str]) -> Placement | None:
    """Handle an incomplete set of variables if no launcher has started this process.

    Returns a world of one if WORLD_SIZE is 1, and raises otherwise.
    """
    if not any(env.get(name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")):
        return None
    require(env, ("RANK", "WORLD_SIZE"), DESCRIPTION)
    rank, size = rank_of(env, "RANK", "WORLD_SIZE")
    if size == 1:
        return alone("torch variables", "RANK", "WORLD_SIZE")
    raise InvalidArgument(
        f"RANK={rank} WORLD_SIZE={size} are set but LOCAL_RANK is not. On some platforms (PyTorchJob, PAI) they "
        f"count machines and not processes, so pycollective does not guess. One process per machine: set "
        f"LOCAL_RANK=0. Several: `torchrun --nnodes $WORLD_SIZE --node-rank $RANK --master-addr $MASTER_ADDR "
        f"--master-port $MASTER_PORT --nproc-per-node N script.py`"
    )


def place(
    env: Mapping[str, str], launcher: str, kvs: Callable[[], Kvs] | None = None, run_id: str = ""
) -> Placement:
    require(env, ("RANK", "WORLD_SIZE"), DESCRIPTION)
    rank, size = rank_of(env, "RANK", "WORLD_SIZE")
    if size == 1:
        return alone(launcher, *NAMES)
    require(env, NAMES, DESCRIPTION)
    local_rank, local_size = local_place(env, size)
    one_host = local_size == size
    # The name of the job includes MASTER_PORT, although that port itself belongs to torch or to
    # torchrun's agent. It omits MASTER_ADDR, because ranks may know the same host by different
    # names.
    job = f"{integer(env, 'MASTER_PORT')}/{run_id}/{size}"
    hosts = [] if kvs else hosts_of(env["MASTER_ADDR"], rank, one_host=one_host if local_size else None)
    others = [] if kvs else (other_spellings if rank > 0 else opened_besides)(env["MASTER_ADDR"], hosts)
    return Placement(
        rank=rank,
        size=size,
        local_rank=local_rank,
        local_size=local_size,
        launcher=launcher,
        one_host=one_host,
        store_addresses=stores(env, job, hosts),
        also_at=stores(env, job, others),
        hosts_store=rank == 0 and kvs is None,
        kvs=kvs,
        job=job,
        variables=NAMES,
    )


def default_store(env: Mapping[str, str], run_id: str = "") -> Callable[[], Kvs] | None:
    """Return an opener for the store of torch.distributed, or None if that is not initialised.

    Never imports torch.
    """
    if "torch.distributed" not in sys.modules:
        return None
    from pycollective.bootstrap.kvs.torch_default import initialised_store

    require(env, ("RANK", "WORLD_SIZE"), DESCRIPTION)
    rank, size = rank_of(env, "RANK", "WORLD_SIZE")
    kvs = initialised_store(rank, size, f"{run_id}/{size}")
    return None if kvs is None else lambda: kvs


def local_place(env: Mapping[str, str], size: int) -> tuple[int, int]:
    if env.get("LOCAL_WORLD_SIZE"):
        return rank_of(env, "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    local_rank = integer(env, "LOCAL_RANK")
    if not 0 <= local_rank < size:
        raise InvalidArgument(
            f"LOCAL_RANK={local_rank} WORLD_SIZE={size}: local ranks count from 0 to WORLD_SIZE - 1"
        )
    return local_rank, 0


def hosts_of(master: str, rank: int, *, one_host: bool | None) -> list[str]:
    if master == "localhost" and rank == 0 and one_host is False:
        return candidates(
            one_host=None
        )  # Kubeflow gives rank 0 localhost, and gives ranks on other hosts the name of rank 0's host
    return store_hosts(master, one_host=one_host, what="MASTER_ADDR=")


def stores(env: Mapping[str, str], job: str, hosts: Sequence[str]) -> tuple[str, ...]:
    if not hosts:
        return ()
    found = ports(env, job, taken=integer(env, "MASTER_PORT"))
    return tuple(join(host, port) for port in found for host in hosts)
