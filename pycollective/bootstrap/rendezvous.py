"""From a place in the world to the other ranks: the store, the key, and the listening addresses."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pycollective.bootstrap import addresses, bootstrap_info, key_sources
from pycollective.bootstrap.key import job_id, new_key
from pycollective.bootstrap.placement import Placement
from pycollective.errors import InvalidArgument

if TYPE_CHECKING:
    from pycollective import _core

WARN_S = 5.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0


@dataclass(frozen=True)
class Rendezvous:
    """The caller calls all_joined() after every rank has joined, and close() at the end."""

    store_addresses: list[str]
    host_store: list[str] | None  # rank 0 opens the store at the first of these that can be bound
    job: bytes  # 16 bytes
    key: bytes = field(repr=False)  # 32 bytes
    key_source: str  # for messages
    listen: list[str]  # where this rank's listener binds; if empty, the address by which it reached the store
    encrypts: bool = False
    server: _core.StoreServer | None = None  # open on rank 0 if there is a KVS
    withdraw: Callable[[], None] | None = None  # removes rank 0's card from the KVS
    advice: str = ""  # what to add to the error if not all ranks join

    def all_joined(self) -> None:
        if self.withdraw is not None:
            self.withdraw()

    def close(self) -> None:
        if self.server is not None:
            self.server.close()


def placed(
    place: Callable[[], Placement], *, deadline: float, clock: Callable[[], float] = time.monotonic
) -> Placement:
    """Return the place, as soon as the name of rank 0's host resolves."""
    begin, pause, warned = clock(), FIRST_PAUSE_S, False
    while True:
        try:
            return place()
        except addresses.NotResolved as error:
            now = clock()
            if now >= deadline:
                raise InvalidArgument(
                    f"{error}, {now - begin:.3g} s long. Check the name, and that this host finds it (`getent hosts`); "
                    f"init(timeout=) or PYCOLLECTIVE_TIMEOUT_S says how long a name that comes later is waited for"
                ) from None
            if not warned and now - begin >= WARN_S:
                warned = True
                sys.stderr.write(
                    f"pycollective: warning: {error}; init() waits for it {deadline - now:.0f} s more\n"
                )
        time.sleep(min(pause, max(0.0, deadline - clock())))
        pause = min(2 * pause, LONGEST_PAUSE_S)


def find_rendezvous(placement: Placement, *, number: int, timeout_s: float) -> Rendezvous:
    """Determine how this rank finds the other ranks.

    `number` counts the worlds of this job in this process, from 0.
    """
    if placement.size == 1:
        return Rendezvous([], None, job_id(b"single"), new_key(), "none needed: a world of one", [])
    encrypts = "encrypt" in key_sources.security(os.environ)
    if placement.kvs is None:
        return at_known_addresses(placement, encrypts)
    kvs, name = placement.kvs(), f"pycollective.{number}"
    if placement.rank == 0:
        info = bootstrap_info.send(kvs, name, placement, timeout_s=timeout_s)
    else:
        info = bootstrap_info.receive(kvs, name, placement, timeout_s=timeout_s)
    return Rendezvous(
        store_addresses=list(info.card.addresses),
        host_store=None,
        job=info.card.job,
        key=info.key,
        key_source=info.key_source,
        listen=listen_at(placement, info.card.addresses),
        encrypts=encrypts,
        server=info.server,
        withdraw=(lambda: kvs.withdraw(name)) if placement.rank == 0 else None,
        advice=advice(placement, info.card.addresses),
    )


def listen_at(placement: Placement, stores: Sequence[str]) -> list[str]:
    """Return where this rank listens. Ranks on rank 0's host listen wherever the store does.

    They do not know which of the host's addresses the other ranks will use.
    """
    if chosen := addresses.chosen_by_user():
        return chosen
    hosts = list(dict.fromkeys(addresses.split(store)[0] for store in stores))
    if placement.also_at and not placement.hosts_store and len(hosts) == 1:
        return []  # the store may be at another address of this host, which other ranks use
    opens_it = placement.hosts_store or (placement.kvs is not None and placement.rank == 0)
    return hosts if opens_it or placement.one_host or addresses.all_here(hosts) else []


def advice(placement: Placement, stores: Sequence[str]) -> str:
    return "" if placement.one_host else addresses.advice(stores)


def at_known_addresses(placement: Placement, encrypts: bool) -> Rendezvous:
    if placement.key is not None:
        key, source = placement.key, f"handed over by {placement.launcher}"
    else:
        key, source = key_sources.named_key(os.environ) or key_sources.users_key(os.environ)
    stores = list(placement.store_addresses)
    addresses.check_loopback(dict.fromkeys(addresses.split(store)[0] for store in stores))
    return Rendezvous(
        store_addresses=[*stores, *placement.also_at],
        host_store=[*stores, *placement.also_at] if placement.hosts_store else None,
        job=job_id(placement.job.encode()),
        key=key,
        key_source=source,
        listen=listen_at(placement, stores),
        encrypts=encrypts,
        advice=advice(placement, stores),
    )
