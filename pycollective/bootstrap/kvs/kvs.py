"""The launcher's own key-value space (KVS), in which rank 0 publishes its store's address."""

from __future__ import annotations

from typing import Protocol


class Kvs(Protocol):
    """A KVS. Every rank calls publish() or read(), once per key and in the same order of keys.

    In some KVS each such call needs all ranks. A call that failed may be repeated with the same
    arguments. A KVS is as trustworthy as the launcher that runs it: any process that can read it
    can read the job's key.
    """

    name: str  # for messages, e.g. "PMIx of Open MPI" or "PMI-1 of hydra"
    lasting: bool  # values of an earlier run may still exist and can be replaced

    def publish(self, key: str, text: str, *, timeout_s: float) -> None:
        """Publish `text`. Only rank 0 calls this.

        `text` has at most 900 printable ASCII characters, without blanks, ';' and '='.
        """

    def read(self, key: str, *, timeout_s: float) -> str:
        """Return rank 0's text, after waiting for it.

        Raises CollectiveTimeout, or PeerFailure if the launcher has died.
        """

    def withdraw(self, key: str) -> None:
        """Remove the text. Rank 0 calls this after all ranks have read it.

        Does nothing if the KVS cannot remove values.
        """
