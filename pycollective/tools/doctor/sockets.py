"""The addresses that a process uses, read from its sockets and not from the configuration."""

from __future__ import annotations

import ipaddress
import os
import sys
from pathlib import Path

ESTABLISHED, LISTENING = "01", "0A"


def own_addresses(process: Path, state: str = ESTABLISHED) -> list[str]:
    """Returns the local addresses of a process's TCP sockets. `process` is its folder in /proc."""
    inodes = set()
    for fd in (process / "fd").iterdir():
        try:
            target = os.readlink(fd)
        except OSError:  # the descriptor that listed the folder is closed by now
            continue
        if target.startswith("socket:["):
            inodes.add(target[len("socket:[") : -1])
    found = set()
    for name in ("tcp", "tcp6"):
        try:
            rows = [line.split() for line in (process / "net" / name).read_text().splitlines()[1:]]
        except OSError:
            continue
        found |= {_address(row[1]) for row in rows if row[3] == state and row[9] in inodes}
    return sorted(found)


def _address(word: str) -> str:
    """Decodes 32-bit words in host order: `0100007F:1F90` in /proc/net/tcp is 127.0.0.1."""
    text = bytes.fromhex(word.partition(":")[0])
    raw = b"".join(text[i : i + 4][:: -1 if sys.byteorder == "little" else 1] for i in range(0, len(text), 4))
    address = ipaddress.ip_address(raw)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)
