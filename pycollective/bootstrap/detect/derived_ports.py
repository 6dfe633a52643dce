"""Ports that all ranks find alike, where there is no KVS in which rank 0 could say which it took."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from pycollective.bootstrap.detect.variables import integer
from pycollective.errors import InvalidArgument

CANDIDATES = 16
# Below 32768, where Linux starts to hand out ports by itself. Not read from this host: all must find the same list.
FIRST_PORT, END_PORT = 20000, 32768


def ports(env: Mapping[str, str], text: str, *, taken: int = 0) -> list[int]:
    """What follows from `text`, which all ranks of the job have; PYCOLLECTIVE_PORT names one instead.

    Another job may have the same text, and so the same ports, at another address.
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
