"""Ports that all ranks derive from the same text, if rank 0 has no KVS to publish its port in."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from pycollective.bootstrap.detect.variables import integer
from pycollective.errors import InvalidArgument

CANDIDATES = 16
# The ports are below 32768, where Linux's ephemeral ports begin. The limits are fixed, because all
# hosts must derive the same list.
FIRST_PORT, END_PORT = 20000, 32768


def ports(env: Mapping[str, str], text: str, *, taken: int = 0) -> list[int]:
    """Return ports derived from `text`, which all ranks of the job know.

    If PYCOLLECTIVE_PORT is set, it is the only port. Another job on other hosts may have the same
    text and therefore the same ports.
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
