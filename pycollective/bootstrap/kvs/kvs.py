"""The launcher's own key-value space (KVS), in which rank 0 tells the others where its store is."""

from __future__ import annotations

from typing import Protocol


class Kvs(Protocol):
    """Every rank calls publish or read, once per key and in the same order: some need all of them.

    A call that failed may be made again with the same arguments. A KVS is as trustworthy as the launcher that runs
    it: whoever can read it can read the job's key.
    """

    name: str  # for people: "PMIx of Open MPI", "PMI-1 of hydra"
    lasting: bool  # what an earlier start of the job has published may still be there, and may be replaced

    def publish(self, key: str, text: str, *, timeout_s: float) -> None:
        """Rank 0 puts up `text`: at most 900 printable ASCII characters without blank, ';' and '='."""

    def read(self, key: str, *, timeout_s: float) -> str:
        """Waits for what rank 0 publishes. Raises CollectiveTimeout, or PeerFailure if the launcher is gone."""

    def withdraw(self, key: str) -> None:
        """Rank 0, when all have read it: nobody shall find it later. Does nothing where a KVS cannot forget."""
