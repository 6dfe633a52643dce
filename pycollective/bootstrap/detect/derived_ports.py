"""Ports that all ranks derive alike, where no KVS exists in which rank 0 could publish its port."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from pycollective.bootstrap.detect.variables import integer
from pycollective.errors import InvalidArgument

CANDIDATES = 16
# Below 32768, where Linux's ephemeral ports begin. The limit is fixed, because all hosts must
# derive the same list.
FIRST_PORT, END_PORT = 20000, 32768


def ports(env: Mapping[str, str], text: str, *, taken: int = 0) -> list[int]:
    """Return ports derived from `text`, which all ranks of the job know.

    PYCOLLECTIVE_PORT specifies a port instead. Another job may have the same text, and therefore
    the same ports, at another address.
    """
    if env.get("PYCOLLECTIVE_PORT"):
        port = integer(env, "PYCOLLECTIVE_PORT")
        if not 0 < port < 65536:
            raise InvalidArgument(f"PYCOLLECTIVE_PORT={port} is not a port number (1 to 65535)")
        return [port]
    found: list[int] = []
    attempt = 0
    while len(found) < CANDIDATES:
        digest = hashlib.sha256(f"{text}/{attempt}".encode()).digest()
        port = FIRST_PORT + int.from_bytes(digest[:8], "big") % (END_PORT - FIRST_PORT)
        if port != taken and port not in found:
            found.append(port)
        attempt += 1
    return found
