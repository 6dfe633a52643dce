"""`init("host:port", rank=, size=)`: a place in the world without a launcher. Imported when it is used."""

from __future__ import annotations

import ipaddress

from pycollective.errors import InvalidArgument
from pycollective.launch.detect.placement import Placement
from pycollective.launch.detect.torch_variables import join, own_address_towards, resolve
from pycollective.launch.key import job_id


def place(address: str | None, rank: int, size: int) -> Placement:
    """The place of `rank`; rank 0 opens the store at `address`."""
    if size == 1:
        return Placement(0, 1, 0, 1, [], None, job_id(b"single"), "by hand")
    host, port = _split(address or "")
    try:
        numeric = resolve(host)
    except InvalidArgument as error:
        raise InvalidArgument(
            f"init(address={address!r}): the host {host!r} does not resolve on this machine"
        ) from error
    if ipaddress.ip_address(numeric).is_unspecified:
        raise InvalidArgument(
            f"init(address={address!r}): name the address by which the others reach rank 0, not {host}"
        )
    store = join(numeric, port)
    return Placement(
        rank=rank,
        size=size,
        local_rank=0,
        local_size=0,  # the host map knows
        store_addresses=[store],
        host_store=[store] if rank == 0 else None,
        job=job_id(f"{address}/{size}".encode()),
        launcher="by hand",
        address=numeric if rank == 0 else own_address_towards(numeric),
    )


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise InvalidArgument(
            f'init(address={address!r}): write "host:port" with a port from 1 to 65535, such as "10.0.0.1:29400"'
        )
    return host, int(port)
