"""Placement without a launcher: `init("host:port", rank=, size=)` or `init("file:///path", ...)`.

This module is imported at its first use. Users of PyTorch write the first form as
`tcp://host:port`.
"""

from __future__ import annotations

import functools
from urllib.parse import unquote

from pycollective.bootstrap.addresses import join, opened_besides, other_spellings, store_hosts
from pycollective.bootstrap.kvs.kvs import Kvs
from pycollective.bootstrap.placement import Placement
from pycollective.bootstrap.single import alone
from pycollective.errors import InvalidArgument

FILE, TCP = "file://", "tcp://"


def place(address: str | None, rank: int, size: int) -> Placement:
    """Return the placement of `rank`.

    If `address` is a path, rank 0 opens the store at any address and publishes the store's address
    in a file at that path. Otherwise rank 0 opens the store at `address`.
    """
    if size == 1:
        return alone("by hand")
    text = address or ""
    kvs = functools.partial(_file_kvs, _path_of(text)) if text.startswith(FILE) else None
    host, port = ("", 0) if kvs else _split(text)
    hosts = [] if kvs else _store_hosts(text, host)
    others = [] if kvs else (other_spellings if rank > 0 else opened_besides)(host, hosts)
    return Placement(
        rank=rank,
        size=size,
        local_rank=0,
        local_size=0,  # 0: init() counts the local ranks
        launcher="by hand",
        store_addresses=tuple(join(each, port) for each in hosts),
        also_at=tuple(join(each, port) for each in others),
        hosts_store=rank == 0 and kvs is None,
        kvs=kvs,
        # The job's name omits the host, because ranks may know the same host by different names.
        job=f"{text}/{size}" if kvs else f"{port}/{size}",
    )


def _store_hosts(address: str, host: str) -> list[str]:
    if "://" in host:
        raise InvalidArgument(f'init(address={address!r}): write "host:port" without a scheme')
    return store_hosts(host, one_host=None, what=f"init(address={address!r}): the host ")


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.removeprefix(TCP).rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise InvalidArgument(
            f'init(address={address!r}): write "host:port" with a port from 1 to 65535, such as "10.0.0.1:29400", or '
            f'"file:///path" with a path that all ranks share'
        )
    return host, int(port)


def _path_of(address: str) -> str:
    path = unquote(address.removeprefix(FILE))
    if not path.startswith("/") or path == "/" or "\0" in path:
        raise InvalidArgument(
            f'init(address={address!r}): write "file://" and an absolute path, such as "file:///shared/run-1"'
        )
    return path.rstrip("/")


def _file_kvs(path: str) -> Kvs:
    from pycollective.bootstrap.bootstrap_info import is_listening
    from pycollective.bootstrap.card import parse
    from pycollective.bootstrap.kvs.file import FileKvs

    return FileKvs(path, in_use=lambda text: is_listening(parse(text, path)))
