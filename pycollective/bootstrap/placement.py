"""The placement of one process in the world, as its launcher specifies it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pycollective.bootstrap.kvs.kvs import Kvs


@dataclass(frozen=True)
class Placement:
    """One rank's placement, and how the rank finds the other ranks; see `bootstrap.rendezvous`.

    A rank tries `store_addresses` in order, then `also_at`, repeatedly until its deadline. It uses
    the first store that proves to know the job's key. If `hosts_store` is true, this rank (always
    rank 0) first opens the store itself, at the first port that can be bound at all of these
    addresses. With a `kvs` there are no addresses: rank 0 opens its store at any address and
    publishes the address. A world of one has neither addresses nor a KVS.
    """

    rank: int
    size: int
    local_rank: int
    # 0 if the launcher does not specify it; init() then counts the local ranks with its host map
    local_size: int
    launcher: str  # for messages: "pycollective run", "torchrun", "Open MPI"
    # whether the launcher specifies that all ranks are on this host, so that loopback suffices
    one_host: bool = False
    store_addresses: tuple[str, ...] = ()  # always numeric: "127.0.0.1:4711" or "[::1]:4711"
    # other addresses of the store's host, in case rank 0 was given one of them
    also_at: tuple[str, ...] = ()
    hosts_store: bool = False
    kvs: Callable[[], Kvs] | None = None  # opens the launcher's KVS
    # text that is equal on all ranks and differs between jobs; unused with a KVS, because the card
    # names the job
    job: str = ""
    key: bytes | None = field(default=None, repr=False)  # 32 bytes, if the launcher provided one
    variables: tuple[str, ...] = ()  # names of the variables that determined the placement
