"""RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT: what torchrun sets, and what anybody can set by hand."""

from __future__ import annotations

import hashlib
import ipaddress
import socket
from collections.abc import Mapping

from pycollective.errors import InvalidArgument
from pycollective.launch.detect.placement import Placement
from pycollective.launch.detect.variables import integer, rank_of, require
from pycollective.launch.key import job_id

WHO = "RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT"
PORT_CANDIDATES = 16
# Below 32768, where Linux starts to hand out ports by itself. Not read from this host: all must find the same list.
FIRST_PORT, END_PORT = 20000, 32768


def detect(env: Mapping[str, str]) -> Placement | None:
    if not any(env.get(name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")):
        return None
    require(env, ("RANK", "WORLD_SIZE"), WHO)
    rank, size = rank_of(env, "RANK", "WORLD_SIZE")
    if size == 1:
        return Placement(0, 1, 0, 1, [], None, job_id(b"single"), "torch variables")
    if not env.get("LOCAL_RANK"):
        raise InvalidArgument(
            f"RANK={rank} WORLD_SIZE={size} are set but LOCAL_RANK is not. On some platforms (PyTorchJob, PAI) they "
            f"count machines and not processes, so pycollective does not guess. One process per machine: set "
            f"LOCAL_RANK=0. Several: `torchrun --nnodes $WORLD_SIZE --node-rank $RANK --master-addr $MASTER_ADDR "
            f"--master-port $MASTER_PORT --nproc-per-node N script.py`"
        )
    require(env, ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"), WHO)
    local_rank, local_size = local_place(env, size)
    # MASTER_PORT itself belongs to torch or to torchrun's agent; it only helps to name the job.
    master = resolve(env["MASTER_ADDR"])
    text = job_text(env, size)
    addresses = [join(master, port) for port in ports(env, text)]
    return Placement(
        rank=rank,
        size=size,
        local_rank=local_rank,
        local_size=local_size,
        store_addresses=addresses,
        host_store=addresses if rank == 0 else None,
        job=job_id(text.encode()),
        launcher="torchrun" if "TORCHELASTIC_RUN_ID" in env else "torch variables",
        address=master if rank == 0 else own_address_towards(master),
    )


def local_place(env: Mapping[str, str], size: int) -> tuple[int, int]:
    if env.get("LOCAL_WORLD_SIZE"):
        return rank_of(env, "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    local_rank = integer(env, "LOCAL_RANK")
    if not 0 <= local_rank < size:
        raise InvalidArgument(
            f"LOCAL_RANK={local_rank} WORLD_SIZE={size}: local ranks count from 0 to WORLD_SIZE - 1"
        )
    return local_rank, 0


def job_text(env: Mapping[str, str], size: int) -> str:
    """What all ranks of this job know and no other job on these machines has: the source of ports and job id."""
    run_id, restart = env.get("TORCHELASTIC_RUN_ID", ""), env.get("TORCHELASTIC_RESTART_COUNT", "0")
    return f"{env['MASTER_ADDR']}:{integer(env, 'MASTER_PORT')}/{run_id}/{restart}/{size}"


def ports(env: Mapping[str, str], text: str) -> list[int]:
    if env.get("PYCOLLECTIVE_PORT"):
        port = integer(env, "PYCOLLECTIVE_PORT")
        if not 0 < port < 65536:
            raise InvalidArgument(f"PYCOLLECTIVE_PORT={port} is not a port number (1 to 65535)")
        return [port]
    found: list[int] = []
    taken = integer(env, "MASTER_PORT")
    attempt = 0
    while len(found) < PORT_CANDIDATES:
        digest = hashlib.sha256(f"{text}/{attempt}".encode()).digest()
        port = FIRST_PORT + int.from_bytes(digest[:8], "big") % (END_PORT - FIRST_PORT)
        if port != taken and port not in found:
            found.append(port)
        attempt += 1
    return found


def resolve(name: str) -> str:
    """A numeric address. `localhost` is 127.0.0.1 whatever the hosts file says, so that all ranks mean the same."""
    if name == "localhost":
        return "127.0.0.1"
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise InvalidArgument(
            f"MASTER_ADDR={name} does not resolve on {socket.gethostname()}: {error}"
        ) from None
    found.sort(key=lambda info: info[0] != socket.AF_INET)  # IPv4 first, else in the resolver's order
    return str(found[0][4][0])


def join(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def own_address_towards(peer: str) -> str:
    """The address of this host on the way to `peer`: nothing is sent, the kernel only looks up the route."""
    family = socket.AF_INET6 if ":" in peer else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((peer, 9))
        except OSError as error:
            raise InvalidArgument(
                f"no route from {socket.gethostname()} to MASTER_ADDR {peer}: {error}"
            ) from None
        return str(probe.getsockname()[0])
