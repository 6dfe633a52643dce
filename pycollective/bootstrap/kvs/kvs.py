"""The launcher's own key-value space (KVS), in which rank 0 publishes its store's address."""

from __future__ import annotations

from typing import Protocol


class Kvs(Protocol):
    """Every rank calls publish or read, once per key and in the same order.

    Some KVS need all ranks. A call that failed may be repeated with the same arguments. A KVS is as
    trustworthy as the launcher that runs it: any process that can read it can read the job's key.
    """

    name: str  # for messages: "PMIx of Open MPI", "PMI-1 of hydra"
    lasting: bool  # values of an earlier start of the job may still be there, and may be replaced

    def publish(self, key: str, text: str, *, timeout_s: float) -> None:
        """Publish `text` on rank 0.

        It has at most 900 printable ASCII characters without blank, ';' and '='.
        """

    def read(self, key: str, *, timeout_s: float) -> str:
        """Wait for rank 0's text.

        Raises CollectiveTimeout, or PeerFailure if the launcher is gone.
        """

    def withdraw(self, key: str) -> None:
        """Remove the text, on rank 0, after all ranks have read it.

        Does nothing if a KVS cannot.
        """
