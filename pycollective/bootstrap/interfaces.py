"""The network interfaces of this host and their addresses."""

from __future__ import annotations

from pathlib import Path

from pycollective._core import interfaces

__all__ = ["LOOPBACK", "RUNNING", "UP", "default_route", "interfaces"]

UP, LOOPBACK, RUNNING = 0x1, 0x8, 0x40  # IFF_*; a bridge without carrier lacks RUNNING


def default_route() -> list[str]:
    """Return the names of the interfaces with a default route, those of IPv4 first."""
    names = []
    for path, wanted, column in (
        ("/proc/net/route", "00000000", 1),
        ("/proc/net/ipv6_route", "0" * 32 + " 00", 0),
    ):
        try:
            lines = Path(path).read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if column == 1 and fields[1:2] == [wanted]:
                names.append(fields[0])
            if column == 0 and line.startswith(wanted):
                names.append(fields[-1])
    return list(dict.fromkeys(names))
