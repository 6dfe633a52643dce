"""The world as one of several machines' launchers sees it, and a check that ranks can connect."""

from __future__ import annotations

import errno
import socket

from pycollective.bootstrap.addresses import NotResolved, is_usable, store_hosts
from pycollective.bootstrap.interfaces import interfaces
from pycollective.errors import CollectiveError, InvalidArgument
from pycollective.launching.environment import World
from pycollective.launching.options import Machines


def world_of(machines: Machines, here: range) -> World:
    """Return the world as this machine sees it. Every machine has the same number of ranks.

    Rank 0 has the store; the other ranks find it by their environment.
    """
    return World(
        size=machines.count * len(here),
        store=None,
        master=machines.master,
        store_port=machines.port,
        master_port=machines.port + 1,
        first=here.start,
        local_size=len(here),
    )


def check(machines: Machines) -> str | None:
    """Detect early what would make all ranks fail, or wait for ranks that never join.

    Returns a warning if the ranks will wait for the name of rank 0's host to resolve, or None.
    """
    try:
        hosts = store_hosts(machines.master, one_host=None, what="--master ")
    except NotResolved as error:
        return f"{error}; the ranks wait for it in init()"
    if machines.own != 0:
        return None
    for host in hosts:
        try:
            bind(host, machines.port)
            return None
        except OSError as error:
            reason = error
    raise refused(machines, reason)


def bind(host: str, port: int) -> None:
    """Bind as rank 0's store does, but without listening, so that no rank connects to the probe."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))


def refused(machines: Machines, reason: OSError) -> CollectiveError:
    if reason.errno == errno.EADDRINUSE:
        return CollectiveError(
            f"port {machines.port} of {machines.master} is taken, by another program or by another launcher with "
            f"--node-rank 0. Name a free one on all machines: --master {machines.master}:PORT"
        )
    if reason.errno == errno.EADDRNOTAVAIL:
        own = ", ".join(address for name, address, flags in interfaces() if is_usable((name, address, flags)))
        return InvalidArgument(
            f"--master {machines.master} is not an address of {socket.gethostname()}, which has --node-rank 0 (it has "
            f"{own or 'none'}). --master names the machine with --node-rank 0; every machine needs a rank of its own"
        )
    return CollectiveError(f"--master {machines.master} port {machines.port}: {reason.strerror}")
