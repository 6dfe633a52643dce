"""The addresses by which other hosts reach this host."""

from __future__ import annotations

import ipaddress
import socket
from typing import NoReturn

import pytest

from pycollective.bootstrap import addresses
from pycollective.bootstrap.addresses import candidates, chosen_by_user, join, split
from pycollective.bootstrap.interfaces import LOOPBACK, RUNNING, UP, default_route, interfaces
from pycollective.errors import CollectiveError, InvalidArgument

UP_AND_RUNNING = UP | RUNNING
HOST = [
    ("lo", "127.0.0.1", UP_AND_RUNNING | LOOPBACK),
    ("lo", "::1", UP_AND_RUNNING | LOOPBACK),
    ("docker0", "172.17.0.1", UP),  # no container runs: no carrier
    ("ib0", "10.1.0.7", UP_AND_RUNNING),
    ("eth0", "fe80::1", UP_AND_RUNNING),
    ("eth0", "2001:db8::7", UP_AND_RUNNING),
    ("eth0", "192.0.2.7", UP_AND_RUNNING),
    ("eth1", "198.51.100.7", 0),
]


def on_host(*, one_host: bool = False, name: str | None = None, interface: str = "") -> list[str]:
    env = {"PYCOLLECTIVE_INTERFACE": interface}
    return candidates(one_host=one_host, name=name, env=env, found=HOST, routes=["eth0"])


def test_loopback_is_enough_on_one_host() -> None:
    assert on_host(one_host=True) == ["127.0.0.1"]


def test_else_all_that_are_up_ipv4_first_and_the_default_routes_first() -> None:
    assert on_host() == ["192.0.2.7", "10.1.0.7", "2001:db8::7"]


@pytest.mark.parametrize(
    ("words", "chosen"),
    [
        ("ib0", ["10.1.0.7"]),
        ("eth0", ["192.0.2.7", "2001:db8::7"]),
        ("ib0, eth0", ["10.1.0.7", "192.0.2.7", "2001:db8::7"]),
        ("2001:0db8::0007", ["2001:db8::7"]),
        ("docker0", ["172.17.0.1"]),  # usable if it is named explicitly
        ("lo", ["127.0.0.1", "::1"]),
    ],
)
@pytest.mark.parametrize("one_host", [True, False])
def test_the_user_chooses(words: str, chosen: list[str], one_host: bool) -> None:
    assert on_host(interface=words, one_host=one_host) == chosen


@pytest.mark.parametrize("word", ["eth7", "192.0.2.8", "eth"])
def test_an_unknown_interface_is_an_error_that_lists_what_there_is(word: str) -> None:
    with pytest.raises(
        InvalidArgument, match=f"no interface or address '{word}'.*ib0 10.1.0.7.*eth1 .* \\(down\\)"
    ):
        on_host(interface=f"ib0,{word}")


def test_an_interface_that_is_down_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="'eth1' is down"):
        on_host(interface="eth1")


def test_nothing_but_loopback_is_an_error_and_never_silently_loopback() -> None:
    with pytest.raises(InvalidArgument, match=r"no network address.*lo 127.0.0.1.*PYCOLLECTIVE_INTERFACE=lo"):
        candidates(one_host=False, env={}, found=HOST[:3], routes=[])
    with pytest.raises(InvalidArgument, match="no interface with an address"):
        candidates(one_host=False, env={}, found=[], routes=[])


def test_where_the_launcher_says_nothing_and_there_is_no_network_loopback_will_do() -> None:
    assert candidates(one_host=None, env={}, found=HOST[:3], routes=[]) == ["127.0.0.1"]
    assert candidates(one_host=None, env={}, found=HOST, routes=[])[0] == "10.1.0.7"


def test_a_name_of_this_host_means_all_its_addresses() -> None:
    others = ["10.1.0.7", "2001:db8::7", "192.0.2.7"]
    assert addresses.other_spellings("node", ["127.0.0.1"], HOST) == ["::1", *others]
    assert addresses.other_spellings("node", others, HOST) == ["127.0.0.1", "::1"]
    assert addresses.other_spellings("elsewhere", ["203.0.113.5"], HOST) == []


def test_a_numeric_address_of_this_host_means_itself() -> None:
    """Another job may have the same port at another address.

    The two loopback addresses count as one.
    """
    assert addresses.other_spellings("192.0.2.7", ["192.0.2.7"], HOST) == []
    assert addresses.other_spellings("127.0.0.2", ["127.0.0.2"], HOST) == []
    for host in ("localhost", "127.0.0.1"):
        assert addresses.other_spellings(host, ["127.0.0.1"], HOST) == ["::1"]
    assert addresses.other_spellings("[::1]", ["::1"], HOST) == ["127.0.0.1"]


def test_a_rank_0_that_was_given_a_name_is_at_loopback_too() -> None:
    for name in ("node", "localhost"):  # the name that a master pod of Kubeflow has for itself
        assert addresses.opened_besides(name, ["192.0.2.7"], HOST) == ["127.0.0.1"]
        assert addresses.opened_besides(name, ["127.0.0.1"], HOST) == []
    assert addresses.opened_besides("192.0.2.7", ["192.0.2.7"], HOST) == []
    assert addresses.opened_besides("elsewhere", ["203.0.113.5"], HOST) == []


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "[::]"])
def test_any_address_is_no_address(host: str) -> None:
    with pytest.raises(InvalidArgument, match="name the address by which the others reach rank 0"):
        addresses.store_hosts(host, one_host=True, what="MASTER_ADDR=")


@pytest.mark.parametrize(
    "host", ["node1:29500", "http://node1", "node 1", " node1", ".", "10.0.0.256", "1.2.3.4.5"]
)
def test_what_can_never_be_a_name_is_not_waited_for(host: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        addresses.resolve(host, "MASTER_ADDR=")
    assert type(caught.value) is InvalidArgument
    assert str(caught.value).startswith(f"MASTER_ADDR={host} is n")


def test_an_ipv4_address_in_ipv6_is_that_address() -> None:
    assert addresses.resolve("::ffff:127.0.0.1") == "127.0.0.1"


def test_brackets_are_taken_off() -> None:
    assert addresses.store_hosts("[::1]", one_host=True, what="") == ["::1"]


def test_loopback_that_is_down_is_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses.check_loopback(["127.0.0.1"])
    addresses.check_loopback(["127.0.0.1", "192.0.2.7"])
    monkeypatch.setattr(addresses, "unreachable", lambda host: "Network is unreachable")
    addresses.check_loopback(["127.0.0.1", "192.0.2.7"])
    with pytest.raises(CollectiveError, match=r"loopback interface of .* is down.*ip link set lo up"):
        addresses.check_loopback(["127.0.0.1", "::1"])


def test_a_host_name_that_is_loopback_here_means_all_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"debian": "127.0.1.1", "other": "203.0.113.5"}

    def look_up(name: str, *_: object, **__: object) -> list[tuple[object, ...]]:
        return [(socket.AF_INET, 0, 0, "", (names[name], 0))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    assert on_host(name="debian") == ["192.0.2.7", "10.1.0.7", "2001:db8::7"]
    assert on_host(name="other") == ["203.0.113.5"]
    monkeypatch.setattr(addresses, "interfaces", lambda: HOST)
    monkeypatch.setattr(addresses, "default_route", lambda: ["eth0"])
    assert addresses.store_hosts("debian", one_host=False, what="") == on_host()
    assert addresses.store_hosts("debian", one_host=True, what="") == ["127.0.0.1"]
    assert addresses.store_hosts("localhost", one_host=False, what="") == ["127.0.0.1"]  # named explicitly
    assert addresses.store_hosts("127.0.1.1", one_host=False, what="") == ["127.0.1.1"]


def test_the_interfaces_of_this_host_are_found() -> None:
    found = interfaces()
    assert ("lo", "127.0.0.1") in [(name, address) for name, address, _ in found]
    for name, address, flags in found:
        ipaddress.ip_address(address)
        assert bool(flags & LOOPBACK) == (name == "lo")
    assert set(default_route()) <= {name for _, name in socket.if_nameindex()}


def test_what_is_here_is_known_however_it_is_written() -> None:
    assert addresses.all_here([], HOST)
    assert addresses.all_here(["192.0.2.7", "2001:0db8::0007"], HOST)
    assert not addresses.all_here(["192.0.2.7", "192.0.2.8"], HOST)


def test_where_the_system_names_no_interfaces_no_address_is_known_to_be_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def forbidden() -> NoReturn:
        raise CollectiveError("getifaddrs: Address family not supported by protocol")

    monkeypatch.setattr(addresses, "interfaces", forbidden)
    assert not addresses.all_here(["192.0.2.7"])
    assert addresses.advice(["192.0.2.7:80"], {}) == ""


@pytest.mark.parametrize(
    ("interface", "stores", "words"),
    [
        ("", ["192.0.2.1:80"], []),
        ("", ["127.0.0.1:80", "192.0.2.1:80"], []),
        ("", [], []),
        ("", ["127.0.0.1:80", "127.0.0.1:81"], ["127.0.0.1 is loopback", "MASTER_ADDR, or init's address"]),
        ("", ["[::1]:80"], ["::1 is loopback"]),
        (
            "docker0",
            ["192.0.2.1:80"],
            [
                "at docker0 172.17.0.1 (down) alone: if ranks on other hosts cannot reach that",
                "eth0 192.0.2.7",
            ],
        ),
        ("192.0.2.7", ["192.0.2.1:80"], ["at eth0 192.0.2.7 alone: if"]),
        ("lo", ["127.0.0.1:80"], ["at lo 127.0.0.1, lo ::1 alone (loopback", "PYCOLLECTIVE_INTERFACE='lo'"]),
    ],
)
def test_advice_names_what_may_be_wrong(interface: str, stores: list[str], words: list[str]) -> None:
    text = addresses.advice(stores, {"PYCOLLECTIVE_INTERFACE": interface}, HOST)
    assert bool(text) == bool(words)
    for each in words:
        assert each in text


def test_nothing_is_restricted_without_the_variable() -> None:
    assert chosen_by_user({}) == []
    assert chosen_by_user({"PYCOLLECTIVE_INTERFACE": " , "}) == []


@pytest.mark.parametrize(("host", "text"), [("10.0.0.1", "10.0.0.1:80"), ("::1", "[::1]:80")])
def test_join_and_split(host: str, text: str) -> None:
    assert join(host, 80) == text
    assert split(text) == (host, 80)
