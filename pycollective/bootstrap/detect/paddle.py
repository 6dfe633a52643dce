"""Ranks started by `python -m paddle.distributed.launch` or paddle.distributed.spawn."""

from __future__ import annotations

from collections.abc import Mapping

from pycollective.bootstrap.addresses import join, store_hosts
from pycollective.bootstrap.detect.derived_ports import ports
from pycollective.bootstrap.detect.variables import integer, rank_of, require
from pycollective.bootstrap.placement import Placement
from pycollective.bootstrap.single import alone
from pycollective.errors import InvalidArgument

RANK, SIZE, ENDPOINTS = "PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM", "PADDLE_TRAINER_ENDPOINTS"
LOCAL_RANK, LOCAL_SIZE = "PADDLE_LOCAL_RANK", "PADDLE_LOCAL_SIZE"
NAMES = (RANK, SIZE, ENDPOINTS)
# Paddle's own functions, such as get_rank(), read these variables. pycollective's launchers and
# init() set them.
VARIABLES = (RANK, SIZE, "PADDLE_RANK_IN_NODE")
# The variables of Paddle's launcher that describe a rank's placement.
OF_PLACE = frozenset(
    (
        *NAMES,
        LOCAL_RANK,
        LOCAL_SIZE,
        "PADDLE_RANK_IN_NODE",
        "PADDLE_CURRENT_ENDPOINT",
        "PADDLE_MASTER",
        "PADDLE_GLOBAL_RANK",
        "PADDLE_GLOBAL_SIZE",
        "PADDLE_NNODES",
    )
)


def variables_of(rank: int, size: int, local_rank: int) -> dict[str, str]:
    """Return Paddle's variables for a rank that another launcher has started."""
    return dict(zip(VARIABLES, map(str, (rank, size, local_rank)), strict=True))


def are_ours(env: Mapping[str, str]) -> bool:
    """Return whether pycollective set VARIABLES.

    Paddle's launcher also sets them, but always together with endpoints.
    """
    return all(env.get(name) for name in VARIABLES) and not env.get(ENDPOINTS)


def detect(env: Mapping[str, str]) -> Placement | None:
    """Detect Paddle's launcher, which has no KVS.

    Rank 0's store is on the host of the first endpoint, at a port derived from all endpoints.
    """
    if not env.get(RANK) or not env.get(SIZE) or are_ours(env):
        return None
    rank, size = rank_of(env, RANK, SIZE)
    if size == 1:
        return alone("Paddle", RANK, SIZE)
    require(env, NAMES, "paddle.distributed.launch")
    endpoints = [_split(each) for each in env[ENDPOINTS].split(",")]
    hosts = [host for host, _ in endpoints]
    if len(hosts) != size:
        raise InvalidArgument(f"{SIZE}={size}, but {ENDPOINTS} has {len(hosts)}: {env[ENDPOINTS]}")
    # ranks on this host; spawn() sets no local rank
    same = [other for other, host in enumerate(hosts) if host == hosts[rank]]
    local_rank = integer(env, LOCAL_RANK) if env.get(LOCAL_RANK) else same.index(rank)
    local_size = integer(env, LOCAL_SIZE) if env.get(LOCAL_SIZE) else len(same)
    one_host = local_size == size
    # The job's name omits the hosts, because ranks may know the same host by different names.
    job = f"paddle/{','.join(port for _, port in endpoints)}"
    found = ["127.0.0.1"] if one_host else store_hosts(hosts[0], one_host=False, what=f"{ENDPOINTS}=")
    return Placement(
        rank=rank,
        size=size,
        local_rank=local_rank,
        local_size=local_size,
        launcher="Paddle",
        one_host=one_host,
        store_addresses=tuple(join(host, port) for port in ports(env, job) for host in found),
        hosts_store=rank == 0,
        job=job,
        variables=NAMES,
    )


def _split(endpoint: str) -> tuple[str, str]:
    """Return host and port. All spellings of loopback become 127.0.0.1."""
    host, colon, port = endpoint.strip().rpartition(":")
    if not colon or not host:
        raise InvalidArgument(f"{ENDPOINTS}: {endpoint!r} is not host:port")
    return "127.0.0.1" if host in ("localhost", "[::1]", "::1") else host, port
