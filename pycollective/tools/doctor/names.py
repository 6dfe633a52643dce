"""The addresses to which a host name resolves."""

from __future__ import annotations

import ipaddress
import socket
import threading

from pycollective.tools.doctor.check_result import CheckResult, fail, ok, warn

RESOLVE_S = 1.0
HOSTS = (
    "add the address by which other hosts reach this one to /etc/hosts, or give rank 0's address by number"
)


def addresses_of(host: str) -> tuple[str, ...] | str:
    """Returns the addresses of `host`, or why there are none.

    A resolver may take half a minute. This function gives up earlier.
    """
    outcome: list[tuple[str, ...] | str] = []

    def look_up() -> None:
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            outcome.append(tuple(dict.fromkeys(str(info[4][0]) for info in found)))
        except OSError as error:
            outcome.append(error.strerror or str(error))

    thread = threading.Thread(target=look_up, daemon=True)
    thread.start()
    thread.join(RESOLVE_S)
    return outcome[0] if outcome else f"no answer within {RESOLVE_S:g} s"


def host_name(host: str, addresses: tuple[str, ...] | str, *, one_host: bool) -> CheckResult:
    """Checks the host's name: ranks on other hosts use it to find rank 0."""
    if isinstance(addresses, str):
        found = f"{host} does not resolve: {addresses}"
        return warn("host name", found, HOSTS) if one_host else fail("host name", found, HOSTS)
    found = f"{host} is {', '.join(addresses)}"
    loopback = all(ipaddress.ip_address(each.partition("%")[0]).is_loopback for each in addresses)
    if loopback and not one_host:
        return warn("host name", f"{found}: other hosts cannot reach it by that", HOSTS)
    return ok("host name", found)
