"""What a launcher tells one process about its place in the world."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Placement:
    """One rank's place and the way to the rendezvous store.

    A rank tries `store_addresses` in order, round and round until its deadline, and takes the first that answers with
    the right job. If `host_store` is a list, this rank (always rank 0) first opens the store itself, at the first of
    these addresses that can be bound; they are those of `store_addresses`. A world of one has neither.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int  # 0: the launcher does not say; the host map of init() knows
    store_addresses: list[str]  # "127.0.0.1:4711" or "[::1]:4711", always numeric
    host_store: list[str] | None
    job: bytes  # 16 bytes
    launcher: str  # for people: "pycollective run", "torch variables", "single"
    address: str = ""  # where this rank's own data listener binds; empty: loopback
