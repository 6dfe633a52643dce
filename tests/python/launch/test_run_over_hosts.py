"""pc.run for ranks on several hosts: each host makes the call for its own ranks."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import pycollective as pc
from pycollective.launching.environment import free_port

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"world_size": 3}, 'world_size=3.*master="host:port" is needed'),
        ({"world_size": 1}, "ranks 0 to 1 are to start here, but the world has ranks 0 to 0"),
        ({"world_size": 4, "rank_start": 3, "master": "a"}, "ranks 3 to 4 .* ranks 0 to 3"),
        ({"world_size": 4, "rank_start": -1, "master": "a"}, "ranks -1 to 0"),
        ({"rank_start": 2}, "ranks 2 to 3 .* ranks 0 to 1"),
        ({"master": "a"}, "give world_size="),
        ({"world_size": 4, "master": "a:b"}, "'a:b'.* is not host or host:port"),
        ({"world_size": 4, "master": "a:70000"}, "'a:70000'.* is not host or host:port"),
        ({"world_size": 4, "master": ":29400"}, "':29400'.* is not host or host:port"),
    ],
)
def test_what_describes_no_place_in_a_world_of_several_hosts_is_refused(
    given: dict[str, Any], message: str
) -> None:
    with pytest.raises(pc.InvalidArgument, match=message):
        pc.run(place, n=2, **given)


def place() -> tuple[int, int, int, int, float]:
    return pc.rank(), pc.size(), pc.local_rank(), pc.local_size(), float(pc.allreduce(1.0))


@pytest.fixture
def master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))  # the folder of the hosts' key file
    return f"127.0.0.1:{free_port()}"


def test_each_host_makes_the_call_for_its_own_ranks(master: str) -> None:
    with ThreadPoolExecutor() as hosts:
        first = hosts.submit(pc.run, place, n=2, world_size=3, master=master)
        second = hosts.submit(pc.run, place, n=1, world_size=3, rank_start=2, master=master)
        assert first.result() == [(0, 3, 0, 2, 3.0), (1, 3, 1, 2, 3.0)]
        assert second.result() == [(2, 3, 0, 1, 3.0)]


def test_a_master_port_that_is_taken_is_an_error(master: str) -> None:
    host, port = master.split(":")
    with socket.create_server((host, int(port))), pytest.raises(pc.CollectiveError, match=f"{port}"):
        pc.run(place, n=2, world_size=2, master=master)
