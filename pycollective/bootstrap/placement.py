"""What a launcher tells one process about its place in the world."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pycollective.bootstrap.kvs.kvs import Kvs


@dataclass(frozen=True)
class Placement:
    """One rank's place and the way to the others. `bootstrap.rendezvous` walks that way.

    A rank tries `store_addresses` in order, then those of `also_at`, round and round until its deadline, and takes the
    first that proves to know the job's key. If `hosts_store`, this rank (always rank 0) first opens the store itself,
    at the first port of theirs that can be bound at all of them. With a `kvs` there are no addresses: rank 0 opens
    its store anywhere and publishes where. A world of one has neither.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int  # 0: the launcher does not say; the host map of init() knows
    launcher: str  # for people: "pycollective run", "torchrun", "Open MPI"
    one_host: bool = False  # the launcher says that all ranks are on this host: loopback is enough
    store_addresses: tuple[str, ...] = ()  # "127.0.0.1:4711" or "[::1]:4711", always numeric
    also_at: tuple[str, ...] = ()  # other spellings of them, if they are this host's
    hosts_store: bool = False
    kvs: Callable[[], Kvs] | None = None  # opens the launcher's KVS
    job: str = ""  # what all ranks know and no other job has; a KVS's card replaces it
    key: bytes | None = field(default=None, repr=False)  # 32 bytes, if the launcher handed one over
    variables: tuple[str, ...] = ()  # that decided
