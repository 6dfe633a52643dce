"""Worlds over several hosts, made of network namespaces.

They test exact results, the right interface, and links that break.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from launchers import torch
from namespaces import Host, hosts, missing

pytestmark = pytest.mark.timeout(60)

PROGRAM = str(Path(__file__).with_name("rank_on_host.py"))
PORT = "29500"  # a new namespace has no other user of it
INIT_S, SHORT_S = 20.0, 2.0  # the deadline of init() and of the calls; the short one where init() must fail
LATE_S = 3.0  # how much later than its deadline a rank may raise on a busy machine
LOSS_S = 12.0  # within which a lost host is noticed: far below INIT_S
END_S = 40.0
HOSTS_OF = {  # by rank
    "1+1": (0, 1),
    "2+1": (0, 0, 1),
    "2+2 interleaved": (0, 1, 0, 1),
    "1+2+1": (0, 1, 1, 2),
    "2+1+1 interleaved": (0, 1, 2, 0),
    "2+1+1+1": (0, 0, 1, 2, 3),
}
# Imitates cloned virtual machines: the same address everywhere, with the default route.
NAT0, NAT0_ADDRESS = (
    (
        "link add nat0 type veth peer name nat0-far",
        "link set nat0-far up",
        "link set nat0 up",
        "addr add 10.0.2.15/24 dev nat0",
        "route add default via 10.0.2.2",
    ),
    "10.0.2.15",
)


@dataclass(frozen=True)
class Start:
    """One process, a rank or an agent that starts several."""

    host: Host
    words: Sequence[str]
    env: dict[str, str] = field(default_factory=dict)


@functools.cache
def reason_to_skip() -> str | None:
    return missing()


@pytest.fixture(autouse=True)
def possible() -> None:
    if reason := reason_to_skip():
        pytest.skip(reason)


@pytest.fixture(autouse=True)
def what_all_ranks_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    key = tmp_path / "key"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    monkeypatch.setenv("PYCOLLECTIVE_KEY_FILE", str(key))
    monkeypatch.setenv("INIT_S", str(INIT_S))
    return monkeypatch


def by_variables(made: Sequence[Host], of_ranks: Sequence[int], what: str = "exact") -> list[Start]:
    """LOCAL_WORLD_SIZE is not set: the ranks find out which of them share a host."""
    common = {"WORLD_SIZE": str(len(of_ranks)), "MASTER_ADDR": made[of_ranks[0]].address, "MASTER_PORT": PORT}
    return [
        Start(
            made[host],
            [sys.executable, PROGRAM, what],
            {**common, "RANK": str(rank), "LOCAL_RANK": str(of_ranks[:rank].count(host))},
        )
        for rank, host in enumerate(of_ranks)
    ]


def by_hand(made: Sequence[Host], of_ranks: Sequence[int], address: str) -> list[Start]:
    size = str(len(of_ranks))
    return [
        Start(made[host], [sys.executable, PROGRAM, "exact", address, str(rank), size])
        for rank, host in enumerate(of_ranks)
    ]


def by_torchrun(
    made: Sequence[Host], ranks_of: Sequence[int], options: Sequence[Sequence[str]]
) -> list[Start]:
    """Makes one agent for each host, each with its options."""
    agent = [sys.executable, "-m", "torch.distributed.run", "--nnodes", str(len(made))]
    return [
        Start(host, [*agent, "--nproc-per-node", str(ranks), *its, PROGRAM, "exact"])
        for host, ranks, its in zip(made, ranks_of, options, strict=True)
    ]


@contextlib.contextmanager
def running(starts: Sequence[Start]) -> Iterator[list[subprocess.Popen[str]]]:
    """Runs these processes, and kills those that remain."""
    pipe = subprocess.PIPE
    with contextlib.ExitStack() as stack:
        processes = []
        for each in starts:
            process = subprocess.Popen(
                each.host.command(each.words),
                env={**os.environ, **each.env},
                stdin=subprocess.DEVNULL,
                stdout=pipe,
                stderr=pipe,
                text=True,
            )
            processes.append(stack.enter_context(process))
            stack.callback(process.kill)
        yield processes


def outputs_of(processes: Sequence[subprocess.Popen[str]]) -> list[dict[str, Any]]:
    """Returns the last line of every rank, in no order if an agent has several."""
    said = [process.communicate(timeout=END_S) for process in processes]
    lines = [json.loads(line) for out, _ in said for line in out.splitlines()]
    assert [process.returncode for process in processes] == [0] * len(processes), said
    return lines


def run(starts: Sequence[Start]) -> list[dict[str, Any]]:
    with running(starts) as processes:
        return outputs_of(processes)


def must_have_met(
    said: list[dict[str, Any]], made: Sequence[Host], of_ranks: Sequence[int], *, inside: Sequence[str] = ()
) -> None:
    """Checks that results are exact, and that ranks know their hosts and use the one good address.

    `inside`: further addresses that ranks on rank 0's host may use among themselves.
    """
    assert not [each for each in said if "place" not in each]
    said = sorted(said, key=lambda each: each["place"])
    backend = os.environ.get("PYCOLLECTIVE_TRANSPORT", "auto")
    for rank, host in enumerate(of_ranks):
        beside = of_ranks.count(host)
        by_hosts = backend == "auto" and 1 < len(set(of_ranks)) < len(of_ranks)
        assert (said[rank]["algorithm"] == "hierarchical") == by_hosts, said
        assert said[rank]["shared"] == (beside if beside > 1 and backend == "auto" else 0), said
        place = [rank, len(of_ranks), of_ranks[:rank].count(host), of_ranks.count(host), made[host].name]
        assert said[rank]["place"] == place, said
        allowed = {made[host].address, *(inside if host == of_ranks[0] else ())}
        assert made[host].address in said[rank]["talks_from"]
        assert {*said[rank]["talks_from"], *said[rank]["listens_at"]} <= allowed


def must_all_have_failed(said: list[dict[str, Any]], ranks: int, within_s: float) -> str:
    """Checks that all failed. Returns all messages, for further checks."""
    assert len(said) == ranks
    for each in said:
        assert each.get("error") in ("InvalidArgument", "CollectiveTimeout"), said
        assert each["seconds"] < within_s + LATE_S, said
    return "\n".join(each["message"] for each in said)


@pytest.mark.daily(3)
@pytest.mark.parametrize("layout", HOSTS_OF)
def test_a_world_over_hosts_is_exact(layout: str) -> None:
    of_ranks = HOSTS_OF[layout]
    with hosts(max(of_ranks) + 1) as made:
        must_have_met(run(by_variables(made, of_ranks)), made, of_ranks)


def test_tcp_shares_no_memory_and_rank_0_decides(what_all_ranks_have: pytest.MonkeyPatch) -> None:
    of_ranks = HOSTS_OF["2+1"]
    with hosts(2) as made:
        starts = by_variables(made, of_ranks)
        starts[0].env["PYCOLLECTIVE_TRANSPORT"] = "tcp"
        said = run(starts)
        assert [each["shared"] for each in said] == [0, 0, 0], said


def test_shm_over_hosts_is_an_error_of_every_rank_that_says_what_to_do(
    what_all_ranks_have: pytest.MonkeyPatch,
) -> None:
    what_all_ranks_have.setenv("PYCOLLECTIVE_TRANSPORT", "shm")
    of_ranks = HOSTS_OF["2+1"]
    with hosts(2) as made:
        said = run(by_variables(made, of_ranks))
    assert len(said) == len(of_ranks)
    for each in said:
        assert each.get("error") == "Unsupported", said
        assert "2 hosts" in each["message"], each
        assert "auto" in each["message"], each


def test_shm_on_one_host_is_exact(what_all_ranks_have: pytest.MonkeyPatch) -> None:
    what_all_ranks_have.setenv("PYCOLLECTIVE_TRANSPORT", "shm")
    of_ranks = (0, 0, 0)
    with hosts(1) as made:
        said = run(by_variables(made, of_ranks))
    assert [each.get("shared") for each in said] == [3, 3, 3], said


@pytest.mark.daily(1)
@pytest.mark.parametrize("rate", ["10gbit", "1gbit"])
def test_it_is_exact_over_links_of_this_speed(rate: str) -> None:
    of_ranks = HOSTS_OF["2+1"]
    with hosts(2, rate=rate) as made:
        must_have_met(run(by_variables(made, of_ranks)), made, of_ranks)


def test_it_is_exact_when_encrypted(what_all_ranks_have: pytest.MonkeyPatch) -> None:
    what_all_ranks_have.setenv("PYCOLLECTIVE_SECURITY", "encrypt")
    of_ranks = HOSTS_OF["2+1"]
    with hosts(2) as made:
        must_have_met(run(by_variables(made, of_ranks)), made, of_ranks)


@pytest.mark.daily(1)
@pytest.mark.parametrize("how", ["variables", "by hand", "a shared folder"])
def test_it_is_exact_where_there_is_ipv6_alone(tmp_path: Path, how: str) -> None:
    if reason := missing(6):
        pytest.skip(reason)
    of_ranks = HOSTS_OF["1+2+1"]
    with hosts(3, family=6) as made:
        if how == "variables":
            starts = by_variables(made, of_ranks)
        else:
            address = f"[{made[0].address}]:{PORT}" if how == "by hand" else f"file://{tmp_path}/run"
            starts = by_hand(made, of_ranks, address)
        must_have_met(run(starts), made, of_ranks)


@pytest.mark.daily(1)
@pytest.mark.skipif(torch() is not None, reason=str(torch()))
@pytest.mark.parametrize("rendezvous", ["static", "c10d"])
def test_it_is_exact_with_one_agent_of_torchrun_on_each_host(rendezvous: str) -> None:
    ranks_of = (2, 1, 1) if rendezvous == "static" else (1, 2)
    with hosts(len(ranks_of)) as made:
        words = {
            "static": "--node-rank {number} --master-addr {first} --master-port {PORT}",
            "c10d": "--rdzv-backend c10d --rdzv-id 7 --rdzv-endpoint {first}:{PORT} "
            "--rdzv-conf is_host={is_first} --local-addr {address}",
        }[rendezvous]
        options = [
            words.format(
                number=number, address=host.address, first=made[0].address, is_first=number == 0, PORT=PORT
            ).split()
            for number, host in enumerate(made)
        ]
        said = run(by_torchrun(made, ranks_of, options))
        names = [host.name for host in made]
        of_ranks = [names.index(each["place"][4]) for each in sorted(said, key=lambda each: each["place"])]
        assert [of_ranks.count(number) for number in range(len(made))] == list(ranks_of)
        must_have_met(said, made, of_ranks)


@pytest.mark.daily(2)
@pytest.mark.parametrize("how", ["variables", "a shared folder"])
@pytest.mark.parametrize("interface", ["", "eth0"])
def test_the_interface_is_taken_with_a_route_to_the_others(
    tmp_path: Path, what_all_ranks_have: pytest.MonkeyPatch, how: str, interface: str
) -> None:
    """Both addresses of rank 0's host reach the rank beside it, but only one the third rank."""
    what_all_ranks_have.setenv("PYCOLLECTIVE_INTERFACE", interface)
    of_ranks = HOSTS_OF["2+1"]
    with hosts(2) as made:
        for host in made:
            host.ip(*NAT0)
        if how == "variables":
            starts = by_variables(made, of_ranks)
        else:
            starts = by_hand(made, of_ranks, f"file://{tmp_path}/run")
        inside = [] if interface else [NAT0_ADDRESS]
        must_have_met(run(starts), made, of_ranks, inside=inside)


def test_an_interface_that_does_not_reach_the_others_is_refused_by_all_and_named(
    what_all_ranks_have: pytest.MonkeyPatch,
) -> None:
    what_all_ranks_have.setenv("PYCOLLECTIVE_INTERFACE", "nat0")
    of_ranks = HOSTS_OF["2+1"]
    with hosts(2) as made:
        for host in made:
            host.ip(*NAT0)
        said = run(by_variables(made, of_ranks))
    must_all_have_failed(said, len(of_ranks), 0.0)
    for each in said:
        assert each["error"] == "InvalidArgument"
        assert "PYCOLLECTIVE_INTERFACE" in each["message"], each
        assert f"nat0 {NAT0_ADDRESS}" in each["message"], each
        assert "eth0 10.78.0." in each["message"], each  # the suggested interface


@pytest.mark.daily(1)
@pytest.mark.parametrize("how", ["MASTER_ADDR", "PYCOLLECTIVE_INTERFACE", "by hand"])
def test_loopback_between_hosts_is_an_error_of_every_rank_that_says_what_to_do(
    what_all_ranks_have: pytest.MonkeyPatch, how: str
) -> None:
    at_once = how == "PYCOLLECTIVE_INTERFACE"
    what_all_ranks_have.setenv("INIT_S", str(INIT_S if at_once else SHORT_S))
    of_ranks = HOSTS_OF["2+1"]
    with hosts(2) as made:
        if how == "by hand":
            starts = by_hand(made, of_ranks, f"localhost:{PORT}")
        else:
            starts = by_variables(made, of_ranks)
            for each in starts:
                each.env[how] = {"MASTER_ADDR": "127.0.0.1", "PYCOLLECTIVE_INTERFACE": "lo"}[how]
        said = run(starts)
    must_all_have_failed(said, len(of_ranks), INIT_S / 2 if at_once else SHORT_S)
    for each in said:
        assert not at_once or each["error"] == "InvalidArgument"
        assert "loopback" in each["message"], each
        assert ("init's address" if how == "by hand" else how) in each["message"], each


@pytest.mark.parametrize("what", ["the cable", "the interface"])
def test_a_host_that_is_cut_off_is_an_error_of_every_rank_long_before_the_deadline(what: str) -> None:
    of_ranks = HOSTS_OF["2+1+1 interleaved"]
    with hosts(3) as made, running(by_variables(made, of_ranks, "until_broken")) as processes:
        for rank, process in enumerate(processes):
            assert process.stdout is not None
            assert json.loads(process.stdout.readline()) == {"ready": rank}
        if what == "the cable":
            made[2].unplug()
        else:
            made[2].ip("link set eth0 down")
        said = outputs_of(processes)
    for rank, each in enumerate(said):
        assert each["error"] in ("PeerFailure", "Excluded"), each
        assert each["seconds"] < LOSS_S, each
        if rank != 2:
            assert f"rank 2 (host {made[2].name}" in each["message"], each
