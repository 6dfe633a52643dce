"""The card that rank 0 publishes in a KVS: one line with its store's addresses and its key."""

from __future__ import annotations

import string
from dataclasses import dataclass, field

from pycollective.errors import PeerFailure

FORM = "pycollective-1"
LONGEST = 900  # characters per card; every KVS accepts this many
HOST_CHARACTERS = frozenset(string.ascii_letters + string.digits + ".-_")


@dataclass(frozen=True)
class Card:
    size: int
    job: bytes  # 16 bytes, new for every world
    host: str  # rank 0's host name, for messages
    key_id: str  # identifies the key without revealing it
    key: bytes | None = field(repr=False)  # None if the ranks read the key from a file
    addresses: tuple[str, ...] = ()  # addresses of the store, the best first

    def text(self) -> str:
        host = "".join(c if c in HOST_CHARACTERS else "_" for c in self.host)[:64]
        key = self.key.hex() if self.key is not None else "-"
        line = ",".join((FORM, str(self.size), self.job.hex(), host, self.key_id, key))
        for address in self.addresses:  # add as many addresses as fit
            if len(line) + 1 + len(address) <= LONGEST:
                line += "," + address
        return line


def parse(text: str, kvs: str) -> Card:
    try:
        form, size, job, host, key_id, key, *addresses = text.split(",")
        if form != FORM or not addresses:
            raise ValueError
        return Card(
            int(size),
            bytes.fromhex(job),
            host,
            key_id,
            None if key == "-" else bytes.fromhex(key),
            tuple(addresses),
        )
    except ValueError:
        start = text.partition(",")[0][:40]
        raise PeerFailure(
            f"{kvs} holds no card that this version can read (it begins {start!r}, not {FORM!r}): do all ranks run "
            f"the same version of pycollective?"
        ) from None
