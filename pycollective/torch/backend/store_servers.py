"""Which server torch's store has, where one default group comes after another at one address and port.

destroy_process_group() ends the server, which rank 0 has. A rank that is quicker than rank 0, and calls
init_process_group() again, still finds it in the moment in which it ends. So a group of ours gives its server a name,
in a key of the server itself, and every rank knows the names of the groups that it has left, and holds a connection
that tells when the server ends; then it looks for the next one. A rank that finds one of these names nevertheless,
because the program on rank 0 holds the store, looks once more, until rank 0 has come too. Nothing is kept alive for
that: a server that goes on would tell the groups after it, gloo's for example, the addresses of ranks that are gone.
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
CLOSES_S = 0.05  # after its connections a server closes its port; torch warns where a rank comes in between
ENDING_S = 5.0  # a server has ended by then

Handler = Callable[..., Iterator[Any]]

# By the names of the groups that this process was in: what is open to their servers as long as those are there.
_left: dict[bytes, socket.socket | None] = {}


def without_prefix(store: dist.Store) -> dist.Store:
    """The store that is inside of it, or itself."""
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    return store


def name(store: dist.Store) -> None:
    """On rank 0, before the others may know that it is there."""
    server = without_prefix(store)
    if isinstance(server, dist.TCPStore) and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        server.set(KEY, uuid.uuid4().hex)  # torchrun's own server outlives all groups


def name_of(store: dist.Store) -> bytes | None:
    """What rank 0 has given to the server of this store; None: nothing."""
    server = without_prefix(store)
    return _found(server) if isinstance(server, dist.TCPStore) else None


def _found(server: dist.Store) -> bytes | None:
    return bytes(server.get(KEY)) if server.check([KEY]) else None


def leave(name: bytes | None, store: dist.Store, rank: int) -> None:
    """The group of the server with this name is no more, here."""
    if name is None or name in _left:
        return
    _left[name] = None
    server = without_prefix(store)
    if rank != 0 and isinstance(server, dist.TCPStore):
        with contextlib.suppress(OSError):  # it is gone already
            _left[name] = socket.create_connection((server.host, server.port), timeout=AGAIN_S)


def _is_readable(connection: socket.socket) -> bool:
    """Within AGAIN_S. By poll(), because select() takes no descriptor from 1024 on."""
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
    """What a rendezvous handler of torch yields: again and again, until the server is none of an earlier group."""
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
        except RuntimeError:  # maybe it has ended in this moment
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
    ):  # the program holds the server of this process: then it is the next group's, as torch has it
        server.delete_key(KEY)
    return rank != 0
