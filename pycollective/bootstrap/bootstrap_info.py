"""The bootstrap info of a world: the addresses and the key of rank 0's store.

Rank 0 opens the store and publishes the info in a KVS. The other ranks read it there.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pycollective.bootstrap import addresses, key_sources
from pycollective.bootstrap.card import Card, parse
from pycollective.bootstrap.key import key_id, new_key
from pycollective.bootstrap.kvs.kvs import Kvs
from pycollective.bootstrap.local_store import open_store
from pycollective.bootstrap.placement import Placement
from pycollective.errors import CollectiveTimeout, InvalidArgument

if TYPE_CHECKING:
    from pycollective import _core

JOB_BYTES = 16
PROBE_S = 1.0  # timeout for the connection to one address of a card
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 0.5


@dataclass(frozen=True)
class BootstrapInfo:
    card: Card
    key: bytes = field(repr=False)
    key_source: str
    server: _core.StoreServer | None = None


# What rank 0 has published in a KVS that keeps the first value of a key. If init() fails and is
# repeated, rank 0 must open its store with the same addresses and key.
_published: dict[tuple[str, str], BootstrapInfo] = {}


def send(kvs: Kvs, name: str, placement: Placement, *, timeout_s: float) -> BootstrapInfo:
    """Open rank 0's store and publish the bootstrap info."""
    earlier = None if kvs.lasting else _published.get((kvs.name, name))
    made = reopen(earlier) if earlier is not None else make(kvs, placement)
    _published[kvs.name, name] = made
    try:
        kvs.publish(name, made.card.text(), timeout_s=timeout_s)
    except BaseException:
        assert made.server is not None
        made.server.close()
        raise
    return made


def make(kvs: Kvs, placement: Placement) -> BootstrapInfo:
    env = os.environ
    known = key_sources.named_key(env)
    if known is None and "strict" in key_sources.security(env):
        known = key_sources.users_key(env)
    key, source = known or (new_key(), f"made by rank 0 and published in {kvs.name}: as secret as that")
    job = secrets.token_bytes(JOB_BYTES)
    one_host = None if placement.local_size == 0 and not placement.one_host else placement.one_host
    hosts = addresses.candidates(one_host=one_host)
    addresses.check_loopback(hosts)
    anywhere = [addresses.join(ip, 0) for ip in hosts]
    server = open_store(anywhere, key=key, job=job, key_source=source)
    published = None if known else key
    card = Card(placement.size, job, socket.gethostname(), key_id(key), published, tuple(server.addresses))
    return BootstrapInfo(card, key, source, server)


def reopen(earlier: BootstrapInfo) -> BootstrapInfo:
    card, key = earlier.card, earlier.key
    server = open_store(card.addresses, key=key, job=card.job, key_source=earlier.key_source)
    return BootstrapInfo(card, key, earlier.key_source, server)


def receive(kvs: Kvs, name: str, placement: Placement, *, timeout_s: float) -> BootstrapInfo:
    """Read rank 0's bootstrap info on a rank other than 0."""
    card = read(kvs, name, timeout_s)
    if card.size != placement.size:
        raise InvalidArgument(
            f"rank 0 on {card.host} opened a world of {card.size} ranks, and this is rank {placement.rank} of "
            f"{placement.size}. All ranks must be given the same size"
        )
    env = os.environ
    named = key_sources.named_key(env)
    if card.key is None:
        key, source = named or key_sources.users_key(env)
        key_sources.must_agree(key, source, their_id=card.key_id, their_host=card.host)
        return BootstrapInfo(card, key, source)
    if named is not None or "strict" in key_sources.security(env):
        variable = key_sources.FILE if named is not None else f"{key_sources.SECURITY}=strict"
        raise InvalidArgument(
            f"{variable} is set on {socket.gethostname()}, but rank 0 on {card.host} published a key of its own: set "
            f"it on every rank, or on none"
        )
    return BootstrapInfo(card, card.key, f"made by rank 0 and read from {kvs.name}: as secret as that")


def read(kvs: Kvs, name: str, timeout_s: float) -> Card:
    """Return the card of the current run.

    If the KVS may hold a card of an earlier run, only a card with a listening store is returned.
    """
    deadline, pause = time.monotonic() + timeout_s, FIRST_PAUSE_S
    while True:
        left = max(0.0, deadline - time.monotonic())
        card = parse(kvs.read(name, timeout_s=left), kvs.name)
        if not kvs.lasting or is_listening(card):
            return card
        if time.monotonic() > deadline:
            raise CollectiveTimeout(
                f"{kvs.name} says that rank 0 on {card.host} has its store at {' or '.join(card.addresses)}, but "
                f"nothing answered there in {timeout_s:.3g} s. Either rank 0 of this run never came to init() and an "
                f"earlier run has left that, or the way there is blocked (PYCOLLECTIVE_INTERFACE chooses another)"
            )
        time.sleep(min(pause, max(0.0, deadline - time.monotonic())))
        pause = min(2 * pause, LONGEST_PAUSE_S)


def is_listening(card: Card) -> bool:
    return any(answers(*addresses.split(address)) for address in card.addresses)


def answers(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=PROBE_S) as probe:
            # The kernel may choose the target port as the probe's own port. The probe then connects
            # to itself.
            return bool(probe.getsockname() != probe.getpeername())
    except OSError:
        return False
