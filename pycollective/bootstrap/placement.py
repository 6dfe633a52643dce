"""What a launcher specifies about the place of one process in the world."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pycollective.bootstrap.kvs.kvs import Kvs


@dataclass(frozen=True)
class Placement:
    """One rank's place, and how it finds the other ranks; see `bootstrap.rendezvous`.

    A rank tries `store_addresses` in order, then `also_at`, repeatedly until its deadline, and uses
    the first store that proves to know the job's key. If `hosts_store`, this rank (always rank 0)
    first opens the store itself, at the first port of these addresses that can be bound at all of
    them. With a `kvs` there are no addresses: rank 0 opens its store at any address and publishes
    it. A world of one has neither.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int  # 0 if the launcher does not specify it; the host map of init() has it
    launcher: str  # for messages: "pycollective run", "torchrun", "Open MPI"
    one_host: bool = False  # the launcher specifies that all ranks are on this host, so loopback suffices
    store_addresses: tuple[str, ...] = ()  # always numeric: "127.0.0.1:4711" or "[::1]:4711"
    also_at: tuple[str, ...] = ()  # other spellings of them, if they are on this host
    hosts_store: bool = False
    kvs: Callable[[], Kvs] | None = None  # opens the launcher's KVS
    job: str = ""  # text that all ranks know and no other job has; a KVS's card replaces it
    key: bytes | None = field(default=None, repr=False)  # 32 bytes, if the launcher provided one
    variables: tuple[str, ...] = ()  # the variables that determined the place
