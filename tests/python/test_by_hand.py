"""Addresses as PyTorch's users write them: tcp:// and env://."""

from __future__ import annotations

import pytest

import pycollective as pc
from pycollective import testing
from pycollective.by_hand import place


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


def by_environment() -> tuple[int, int]:
    group = pc.init("env://", timeout=20)
    total = pc.allreduce(1)
    pc.shutdown()
    return group.rank, total


def test_env_is_another_spelling_of_no_address() -> None:
    assert testing.run(by_environment, 2, init=False) == [(0, 2), (1, 2)]
    assert pc.init("env://").size == 1
    pc.shutdown()
