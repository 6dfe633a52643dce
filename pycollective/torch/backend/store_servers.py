"""Finds the right server of torch's store when default groups succeed each other at one port.

destroy_process_group() ends the server, which runs on rank 0. A rank that is faster than rank 0 and
calls init_process_group() again may still connect to the old server. So a group of ours gives its
server a name, stored in a key on the server itself. When a rank leaves a group, it remembers the
name of the group's server, and keeps a connection that shows when the server ends. After that the
rank connects to the next server. If a rank still finds a remembered name, because the program on
rank 0 holds the store, it retries until rank 0 has called init_process_group() too. No server is
kept alive for this: it would give later groups, gloo's for example, the addresses of ranks that no
longer exist.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from pycollective.errors import CollectiveTimeout

__all__ = ["leave", "name", "name_of", "rendezvous", "without_prefix"]

KEY = "pycollective/server"
AGAIN_S = 0.5
# A server closes its port this long after its connections. If a rank connects in between, torch
# warns.
CLOSES_S = 0.05
ENDING_S = 5.0  # after this time a server has certainly ended

Handler = Callable[..., Iterator[Any]]

# The servers of the groups that this process has left, by name. The value is an open connection to
# the server, or None if the server has ended.
_left: dict[bytes, socket.socket | None] = {}


def without_prefix(store: dist.Store) -> dist.Store:
    """Returns the store without its prefixes."""
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    return store


def name(store: dist.Store) -> None:
    """Names the server. Rank 0 calls this before other ranks can know that the server exists."""
    server = without_prefix(store)
    if isinstance(server, dist.TCPStore) and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        server.set(KEY, uuid.uuid4().hex)  # torchrun's own server outlives all groups, so it gets no name


def name_of(store: dist.Store) -> bytes | None:
    """Returns the name that rank 0 has given to the server of this store, or None."""
    server = without_prefix(store)
    return _found(server) if isinstance(server, dist.TCPStore) else None


def _found(server: dist.Store) -> bytes | None:
    return bytes(server.get(KEY)) if server.check([KEY]) else None


def leave(name: bytes | None, store: dist.Store, rank: int) -> None:
    """Records that this process has left the group of the server called `name`."""
    if name is None or name in _left:
        return
    _left[name] = None
    server = without_prefix(store)
    if rank != 0 and isinstance(server, dist.TCPStore):
        with contextlib.suppress(OSError):  # the server has ended already
            _left[name] = socket.create_connection((server.host, server.port), timeout=AGAIN_S)


def _is_readable(connection: socket.socket) -> bool:
    """Returns whether the connection becomes readable within AGAIN_S.

    This uses poll(), because select() supports no descriptor above 1023.
    """
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(AGAIN_S * 1000))


def _await_ends() -> None:
    for name, connection in _left.items():
        if connection is not None and _is_readable(connection):
            connection.close()
            _left[name] = None
            time.sleep(CLOSES_S)


def rendezvous(handler: Handler, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Any]:
    """Acts as a rendezvous handler of torch. Skips servers of groups that this process has left."""
    began = time.monotonic()
    timeout = kwargs.get("timeout", dist.default_pg_timeout)
    while True:
        _await_ends()
        try:
            found = handler(*args, **kwargs)
            store, rank, size = next(found)
            if not _left or not _is_of_the_past(store, rank):
                break
            del found, store
        except RuntimeError:  # raised if the server has just ended
            if not _left or time.monotonic() - began > ENDING_S:
                raise
        if timedelta(seconds=time.monotonic() - began) > timeout:
            raise CollectiveTimeout(
                f"init_process_group: for {timeout.total_seconds():g} s there was only the store of the group that "
                "this rank has destroyed: has rank 0 called destroy_process_group() and init_process_group() as well?"
            )
        if not any(_left.values()):
            time.sleep(AGAIN_S)
    yield store, rank, size
    yield from found


def _is_of_the_past(store: dist.Store, rank: int) -> bool:
    server = without_prefix(store)
    if not isinstance(server, dist.TCPStore):
        return False
    if _found(server) not in _left:
        return False
    if (
        rank == 0
    ):  # the program holds this process's server, and the next group uses the same server, as in torch
        server.delete_key(KEY)
    return rank != 0
