"""Determines from a placement how ranks find each other: the store, the key, the addresses."""

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
    """The caller must call all_joined() after every rank has joined, and close() at the end."""

    store_addresses: list[str]
    # on rank 0: addresses for its store, of which the first port that can be bound is used
    host_store: list[str] | None
    job: bytes  # 16 bytes
    key: bytes = field(repr=False)  # 32 bytes
    key_source: str  # where the key comes from, for messages
    # addresses for this rank's listener; if empty, the one from which it connected to the store
    listen: list[str]
    encrypts: bool = False
    server: _core.StoreServer | None = None  # rank 0's open store if the world has a KVS
    withdraw: Callable[[], None] | None = None  # on rank 0: removes its card from the KVS
    advice: str = ""  # added to the error if not all ranks join

    def all_joined(self) -> None:
        if self.withdraw is not None:
            self.withdraw()

    def close(self) -> None:
        if self.server is not None:
            self.server.close()


def placed(
    place: Callable[[], Placement], *, deadline: float, clock: Callable[[], float] = time.monotonic
) -> Placement:
    """Return the placement. Waits until the name of rank 0's host resolves."""
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
    """Return the addresses for this rank's listener, as in Rendezvous.listen.

    Ranks on rank 0's host listen at the store's addresses, because they do not know which addresses
    of the host the other ranks will use.
    """
    if chosen := addresses.chosen_by_user():
        return chosen
    hosts = list(dict.fromkeys(addresses.split(store)[0] for store in stores))
    if placement.also_at and not placement.hosts_store and len(hosts) == 1:
        # Other ranks may know the store by another address of this host. So this rank listens at
        # the address from which it connects to the store.
        return []
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
