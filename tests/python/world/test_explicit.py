"""Addresses in PyTorch's form: tcp:// and env://."""

from __future__ import annotations

import itertools
import os
import socket
import time
from collections.abc import Sequence
from typing import Any

import pytest

import pycollective as pc
from pycollective import testing
from pycollective.bootstrap import explicit, rendezvous
from pycollective.bootstrap.addresses import LOOPBACKS, is_usable, join, split
from pycollective.bootstrap.detect.torch_variables import detect
from pycollective.bootstrap.explicit import place
from pycollective.bootstrap.interfaces import interfaces
from pycollective.launching.environment import free_port


def test_tcp_is_another_spelling_of_host_and_port() -> None:
    assert place("tcp://127.0.0.1:4711", 1, 2) == place("127.0.0.1:4711", 1, 2)
    assert place("tcp://[::1]:4711", 0, 2).store_addresses == ("[::1]:4711",)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("tcp://", 'write "host:port"'),
        ("tcp://127.0.0.1", 'write "host:port"'),
        ("tcp://127.0.0.1:4711/x", 'write "host:port"'),
        ("tcp://127.0.0.1:4711?rank=0", 'write "host:port"'),
        ("tcp://file:///tmp/x", 'write "host:port"'),
        ("tcp://0.0.0.0:4711", "by which the others reach rank 0"),
        ("[::]:4711", "by which the others reach rank 0"),
        ("http://127.0.0.1:4711", "without a scheme"),
        ("env://", "leave them out"),
    ],
)
def test_what_is_no_address_is_refused(address: str, message: str) -> None:
    with pytest.raises(pc.InvalidArgument, match=message):
        pc.init(address, rank=0, size=2)


def test_a_scheme_that_needs_rank_and_size_says_so() -> None:
    with pytest.raises(pc.InvalidArgument, match="needs all three"):
        pc.init("tcp://127.0.0.1:4711")


HERE = ("localhost", "127.0.0.1", "[::1]", socket.gethostname())


def total() -> int:
    found = pc.allreduce(1)
    pc.shutdown()
    return found


def by_its_own_spelling(hosts: Sequence[str], port: int) -> int:
    rank = int(os.environ["RANK"])
    pc.init(f"{hosts[rank]}:{port}", rank=rank, size=len(hosts), timeout=30)
    return total()


def by_variables(hosts: Sequence[str], port: int, local_size: bool) -> int:
    rank, size = int(os.environ["RANK"]), str(len(hosts))
    for name in [name for name in os.environ if name.startswith("PYCOLLECTIVE_")]:
        del os.environ[name]
    os.environ |= {"MASTER_ADDR": hosts[rank].strip("[]"), "MASTER_PORT": str(port), "LOCAL_RANK": str(rank)}
    os.environ |= {"LOCAL_WORLD_SIZE": size} if local_size else {"LOCAL_WORLD_SIZE": ""}
    pc.init(timeout=30)
    return total()


def resolves(host: str) -> bool:
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.bind((host.strip("[]"), 0))
    except OSError:
        return False
    return True


def spelt_anew(port: int) -> list[int]:
    """Rank 1 names the host in the second world otherwise than in the first."""
    rank = int(os.environ["RANK"])
    found = []
    for host in ("localhost", socket.gethostname() if rank == 1 else "localhost"):
        pc.init(f"{host}:{port}", rank=rank, size=2, timeout=20)
        found.append(total())
    return found


def test_a_second_world_may_be_spelt_otherwise() -> None:
    assert testing.run(spelt_anew, 2, free_port(), init=False) == [[2, 2]] * 2


@pytest.mark.parametrize("first", HERE)
def test_one_address_in_several_spellings_is_one_address(first: str) -> None:
    hosts = [first, *(host for host in HERE if host != first)]
    hosts = [host for host in hosts if resolves(host)]
    assert testing.run(by_its_own_spelling, len(hosts), hosts, free_port(), init=False) == [len(hosts)] * len(
        hosts
    )


@pytest.mark.parametrize("local_size", [True, False])
@pytest.mark.parametrize("first", HERE)
def test_a_master_in_several_spellings_is_one_master(first: str, local_size: bool) -> None:
    hosts = [first, *(host for host in HERE if host != first)]
    hosts = [host for host in hosts if resolves(host)]
    said = testing.run(by_variables, len(hosts), hosts, free_port(), local_size, init=False)
    assert said == [len(hosts)] * len(hosts)


def test_a_rank_looks_for_its_store_at_no_address_that_another_job_may_have() -> None:
    """Its rank 0 may be late, and another job's rank 0 may have the same port, size and key."""
    own = [address for name, address, flags in interfaces() if is_usable((name, address, flags))]
    loopbacks = [address for _, address, _ in interfaces() if address in LOOPBACKS]
    for host in [*own, *loopbacks]:
        others = own if host in loopbacks else loopbacks
        variables = {
            "RANK": "1",
            "WORLD_SIZE": "2",
            "LOCAL_RANK": "1",
            "MASTER_ADDR": host,
            "MASTER_PORT": "4711",
        }
        for placement in (place(join(host, 4711), 1, 2), detect(variables)):
            assert placement is not None
            tried = {split(each)[0] for each in (*placement.store_addresses, *placement.also_at)}
            assert host in tried
            assert not tried & set(others)


def names_that_come_later(monkeypatch: pytest.MonkeyPatch, failures: int) -> list[str]:
    """The resolver knows each name after this number of queries. Returns the queries."""
    asked: list[str] = []
    look_up = socket.getaddrinfo

    def looked_up(name: str, *rest: Any, **more: Any) -> Any:
        asked.append(name)
        if len(asked) <= failures:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return look_up("127.0.0.1", *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    return asked


def later(failures: int, port: int) -> tuple[int, int]:
    rank = int(os.environ["RANK"])
    with pytest.MonkeyPatch.context() as patch:
        asked = names_that_come_later(patch, failures)
        pc.init(f"job-master-0:{port}", rank=rank, size=2, timeout=30)
    return total(), len(asked)


def test_a_name_that_comes_later_is_waited_for() -> None:
    assert testing.run(later, 2, 3, free_port(), init=False) == [(2, 4)] * 2


def test_a_name_that_never_comes_is_reported_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = names_that_come_later(monkeypatch, 1000)
    with pytest.raises(pc.InvalidArgument, match=r"job-master-0 does not resolve on .* s long.*getent hosts"):
        pc.init("job-master-0:4711", rank=1, size=2, timeout=0.3)
    assert len(asked) > 1


def test_a_long_wait_for_a_name_is_reported_while_it_lasts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names_that_come_later(monkeypatch, 10)
    ticks = itertools.count()
    monkeypatch.setattr(time, "sleep", lambda _: None)
    place = rendezvous.placed(
        lambda: explicit.place("job-master-0:4711", 1, 2), deadline=100.0, clock=lambda: float(next(ticks))
    )
    assert place.store_addresses
    said = capsys.readouterr().err
    assert said.count("job-master-0 does not resolve on ") == 1
    assert "init() waits for it" in said


def test_a_failing_address_is_no_name() -> None:
    with pytest.raises(pc.InvalidArgument, match="is not the name of a host"):
        pc.init(f"{'x' * 70}:4711", rank=1, size=2)


def by_environment() -> tuple[int, int]:
    group = pc.init("env://", timeout=20)
    total = pc.allreduce(1)
    pc.shutdown()
    return group.rank, total


def test_env_is_another_spelling_of_no_address() -> None:
    assert testing.run(by_environment, 2, init=False) == [(0, 2), (1, 2)]
    assert pc.init("env://").size == 1
    pc.shutdown()
