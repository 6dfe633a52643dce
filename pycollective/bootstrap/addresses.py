"""Addresses by which other ranks reach this host: those of rank 0's store and of the listeners."""

from __future__ import annotations

import errno
import ipaddress
import os
import re
import socket
from collections.abc import Iterable, Mapping, Sequence

from pycollective.bootstrap.interfaces import LOOPBACK, RUNNING, UP, default_route, interfaces
from pycollective.errors import CollectiveError, InvalidArgument

VARIABLE = "PYCOLLECTIVE_INTERFACE"
LOOPBACKS = ("127.0.0.1", "::1")
NAME = re.compile(r"[\w-]+(\.[\w-]+)*\.?")
DISCARD_PORT = 9  # the UDP port that unreachable() connects to; nothing is sent
Interfaces = Sequence[tuple[str, str, int]]  # (name, address, flags) of each


class NotResolved(InvalidArgument):
    """The name of the host has no address yet.

    The services of a cluster get their names only after the first ranks have started.
    """


def candidates(
    *,
    one_host: bool | None,
    name: str | None = None,
    env: Mapping[str, str] | None = None,
    found: Interfaces | None = None,
    routes: Sequence[str] | None = None,
) -> list[str]:
    """Return numeric addresses of this host for the other ranks, the best first.

    The first of these rules that applies determines them:
    - PYCOLLECTIVE_INTERFACE names them.
    - All ranks are on this host: loopback.
    - `name`, this host's name from the launcher, resolves to an address that is not loopback
      (Debian's 127.0.1.1 is loopback): that address.
    - The addresses of every interface that is up.

    `one_host` is None if the launcher does not specify whether all ranks are on this host. Then, if
    no interface is up, loopback is returned.
    """
    environment = os.environ if env is None else env
    if chosen := chosen_by_user(environment, found):
        return chosen
    if one_host:
        return ["127.0.0.1"]
    if name is not None and not is_loopback(resolved := resolve(name)):
        return [resolved]
    there = interfaces() if found is None else found
    usable = [each for each in there if is_usable(each)]
    if not usable and one_host is None:
        return ["127.0.0.1"]
    if not usable:
        raise InvalidArgument(
            f"{socket.gethostname()} has no network address by which ranks on other hosts could reach it (it has "
            f"{listed(there)}), and the launcher does not say that all ranks are on this host. If they are: set "
            f"{VARIABLE}=lo on all of them"
        )
    first = default_route() if routes is None else routes
    order = {interface: number for number, interface in enumerate(first)}
    usable.sort(key=lambda each: (":" in each[1], order.get(each[0], len(order))))
    return [address for _, address, _ in usable]


def chosen_by_user(env: Mapping[str, str] | None = None, found: Interfaces | None = None) -> list[str]:
    """Return the addresses that PYCOLLECTIVE_INTERFACE allows, or an empty list if it is not set.

    The variable lists names of interfaces or numeric addresses, separated by commas.
    """
    text = (os.environ if env is None else env).get(VARIABLE, "")
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        return []
    there = interfaces() if found is None else found
    chosen: list[str] = []
    for word in words:
        matching = [each for each in there if word == each[0] or same_address(word, each[1])]
        if not matching:
            raise InvalidArgument(
                f"{VARIABLE}={text!r}: {socket.gethostname()} has no interface or address {word!r}. It has "
                f"{listed(there)}"
            )
        up = [address for _, address, flags in matching if flags & UP and not is_link_local(address)]
        if not up:
            raise InvalidArgument(f"{VARIABLE}={text!r}: {word!r} is down, or has only link-local addresses")
        chosen += sorted(up, key=lambda address: ":" in address)
    return list(dict.fromkeys(chosen))


def all_here(hosts: Iterable[str], found: Interfaces | None = None) -> bool:
    """Return whether all these numeric addresses belong to this host. False if that is unknown."""
    try:
        own = {ipaddress.ip_address(address) for _, address, _ in (interfaces() if found is None else found)}
    except CollectiveError:  # a sandbox may forbid listing the interfaces
        return False
    return all(ipaddress.ip_address(host) in own for host in hosts)


def advice(
    stores: Sequence[str], env: Mapping[str, str] | None = None, found: Interfaces | None = None
) -> str:
    """Return a likely reason why ranks on several hosts do not find each other, or ""."""
    environment = os.environ if env is None else env
    if chosen := chosen_by_user(environment, found):
        there = interfaces() if found is None else found
        only = listed([each for each in there if each[1] in chosen])
        end = " (loopback, which reaches no other host)" if all(map(is_loopback, chosen)) else ""
        return (
            f"{VARIABLE}={environment[VARIABLE]!r} lets this rank listen at {only} alone{end}: if ranks on other hosts "
            f"cannot reach that, name another interface of {socket.gethostname()}. It has {listed(there)}"
        )
    hosts = list(dict.fromkeys(split(store)[0] for store in stores))
    if not hosts or not all(map(is_loopback, hosts)):
        return ""
    return (
        f"{', '.join(hosts)} is loopback, which reaches no other host: if there are ranks on others, rank 0 must have "
        f"an address that all of them reach (MASTER_ADDR, or init's address)"
    )


def is_usable(interface: tuple[str, str, int]) -> bool:
    _, address, flags = interface
    return bool(flags & UP and flags & RUNNING and not flags & LOOPBACK and not is_link_local(address))


def listed(there: Interfaces) -> str:
    words = [
        f"{name} {address}{'' if flags & UP and flags & RUNNING else ' (down)'}"
        for name, address, flags in there
    ]
    return ", ".join(words) or "no interface with an address"


def is_link_local(address: str) -> bool:
    return ipaddress.ip_address(address).version == 6 and ipaddress.ip_address(address).is_link_local


def is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


def same_address(one: str, other: str) -> bool:
    try:
        return ipaddress.ip_address(one) == ipaddress.ip_address(other)
    except ValueError:
        return False


def is_name(host: str) -> bool:
    """Return whether `host` must be resolved: it is neither numeric nor `localhost`."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host != "localhost"
    return False


def resolve(name: str, what: str = "the host ") -> str:
    """Return a numeric address.

    `localhost` is 127.0.0.1 whatever the hosts file contains, so that all ranks use the same
    address.
    """
    if name == "localhost":
        return "127.0.0.1"
    if not is_name(name):
        address = ipaddress.ip_address(name)
        return str(getattr(address, "ipv4_mapped", None) or address)
    if not NAME.fullmatch(name):  # a malformed name never resolves
        raise InvalidArgument(
            f"{what}{name} is neither the name of a host nor an address; a port is given apart"
        )
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as error:
        if name.rpartition(".")[2].isdecimal():
            raise InvalidArgument(f"{what}{name} is not an address: {error}") from None
        raise NotResolved(f"{what}{name} does not resolve on {socket.gethostname()}: {error}") from None
    except UnicodeError:  # a label is empty or has more than 63 characters
        raise InvalidArgument(f"{what}{name} is not the name of a host") from None
    found.sort(key=lambda info: info[0] != socket.AF_INET)  # IPv4 first, otherwise the resolver's order
    return str(found[0][4][0])


def store_hosts(host: str, *, one_host: bool | None, what: str) -> list[str]:
    """Return the addresses of rank 0's store on `host`, the name that all ranks were given."""
    host = host.removeprefix("[").removesuffix("]")
    address = resolve(host, what)
    if ipaddress.ip_address(address).is_unspecified:
        raise InvalidArgument(f"{what}{host}: name the address by which the others reach rank 0")
    if not is_loopback(address):
        return [address]
    if is_name(host):  # a name that resolves to loopback is this host's own name
        return ["127.0.0.1"] if one_host else candidates(one_host=one_host)
    return [address]


def other_spellings(host: str, hosts: Sequence[str], found: Interfaces | None = None) -> list[str]:
    """Return other addresses of rank 0's store, in case rank 0 was given another name of its host.

    `host` is the name or address that this rank was given, and `hosts` are its addresses. If `host`
    is a name of this host, the store may be at any of its addresses. If it is loopback, the store
    may be at either loopback (IPv4 or IPv6). Another numeric address has no alternatives, because
    another job may use the same port at other addresses. The result is empty unless all `hosts` are
    on this host.
    """
    there = known_interfaces(found)
    if not all_here(hosts, there):
        return []
    own = [address for _, address, _ in there if address in LOOPBACKS]
    if not stands_for_host(host):
        own = own if any(address in LOOPBACKS for address in hosts) else []
    else:
        own += [each[1] for each in there if is_usable(each)]
    return [address for address in dict.fromkeys(own) if address not in hosts]


def opened_besides(host: str, hosts: Sequence[str], found: Interfaces | None = None) -> list[str]:
    """Return additional addresses at which rank 0 opens its store.

    If rank 0 was given a name of its host, this is a loopback address, for ranks that were given
    loopback.
    """
    there = known_interfaces(found)
    named = stands_for_host(host) or host == "localhost"
    if not named or not all_here(hosts, there) or any(address in LOOPBACKS for address in hosts):
        return []
    return [address for _, address, _ in there if address in LOOPBACKS][:1]


def known_interfaces(found: Interfaces | None) -> Interfaces:
    try:
        return interfaces() if found is None else found
    except CollectiveError:  # a sandbox may forbid listing the interfaces
        return [("lo", "127.0.0.1", UP | RUNNING | LOOPBACK)]


def stands_for_host(host: str) -> bool:
    """Return whether `host`, without brackets, must be resolved."""
    return is_name(host.removeprefix("[").removesuffix("]"))


def check_loopback(hosts: Iterable[str]) -> None:
    """Raise if all hosts are loopback addresses and loopback is down: waiting would be useless."""
    reasons = []
    for host in hosts:
        reason = unreachable(host) if is_loopback(host) else None
        if reason is None:
            return
        reasons.append(f"{host} ({reason})")
    if reasons:
        raise CollectiveError(
            f"the ranks connect at {', '.join(reasons)}, but the loopback interface of {socket.gethostname()} is "
            f"down or lacks that address. Bring it up (`ip link set lo up`), or start the program where it is up"
        )


def unreachable(host: str) -> str | None:
    """Return why nothing can be sent to the host, or None if it can. The check sends nothing."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, DISCARD_PORT))
    except OSError as error:
        down = errno.ENETUNREACH, errno.EADDRNOTAVAIL, errno.ENETDOWN, errno.EHOSTUNREACH, errno.EAFNOSUPPORT
        return error.strerror if error.errno in down else None
    return None


def join(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def split(store: str) -> tuple[str, int]:
    """Undo join()."""
    host, _, port = store.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)
