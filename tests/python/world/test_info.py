"""pc.info(): the facts about this process and its world."""

from __future__ import annotations

import dataclasses
import os
import re

import pytest

import pycollective as pc
from pycollective import _core, debug, testing


def test_before_init_it_says_what_is_known() -> None:
    info = pc.info()
    assert info.version == pc.__version__
    assert info.host == os.uname().nodename
    assert info.launcher is info.rank is info.size is info.local_rank is info.local_size is None
    assert info.transport is None
    assert info.hosts == info.addresses == info.shared_memory_ranks == ()
    assert (info.groups, info.heap_used_nbytes, info.heap_reserved_nbytes) == (0, 0, 0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        info.rank = 1  # type: ignore[misc]
    with pytest.warns(DeprecationWarning, match="use Info.shared_memory_ranks"):
        assert info.neighbours == ()


def facts() -> pc.Info:
    before = pc.info()
    x = pc.empty(1 << 20, "uint8")
    calls = len(debug.dump()["calls"])
    during = pc.info()
    assert len(debug.dump()["calls"]) == calls, "it makes no call"
    assert (during.rank, during.size) == (pc.rank(), pc.size())
    assert (during.local_rank, during.local_size) == (pc.local_rank(), pc.local_size())
    assert before.heap_used_nbytes == 0
    if during.transport == "shm":
        assert during.heap_used_nbytes == x.nbytes
        assert during.heap_reserved_nbytes >= x.nbytes
    else:
        assert during.heap_reserved_nbytes == 0
    assert before.groups == 1
    group = pc.world().split(0)
    assert group is not None
    assert pc.info().groups == 2
    group.close()
    assert pc.info().groups == 1
    return during


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_all_ranks_agree_on_what_they_share(n: int) -> None:
    every = testing.run(facts, n, timeout_s=60)
    for rank, info in enumerate(every):
        assert info.rank == rank
        assert info.hosts == (info.host,) * n
        assert info.addresses == every[0].addresses
        assert info.shared_memory_ranks == (tuple(range(n)) if n > 1 else ())
        assert info.why_no_shared_memory == ("the world has one rank" if n == 1 else "")
        assert info.launcher
    assert len(every[0].addresses) == (n if n > 1 else 0)
    assert all(re.fullmatch(r"127\.0\.0\.1:\d+.*", address) for address in every[0].addresses)
    assert {info.transport for info in every} == ({"shm"} if n > 1 else {None})


def test_over_tcp_nothing_is_shared() -> None:
    for info in testing.run(facts, 2, timeout_s=60, env={"PYCOLLECTIVE_TRANSPORT": "tcp"}):
        assert info.transport == "tcp"
        assert info.shared_memory_ranks == ()
        assert "tcp" in info.why_no_shared_memory


def ends() -> None:
    pc.shutdown()
    info = pc.info()
    assert info.rank is info.launcher is info.transport is None
    assert info.addresses == ()


@pytest.mark.parametrize("n", [1, 2])
def test_after_shutdown_it_is_as_before_init(n: int) -> None:
    testing.run(ends, n, timeout_s=60)


def test_a_shutdown_meanwhile_is_no_error(world_of_one: pc.Group, monkeypatch: pytest.MonkeyPatch) -> None:
    """All its facts about the world are read together."""

    def ended() -> None:
        raise pc.NotInitialized("shut down by another thread")

    monkeypatch.setattr(_core, "world", ended)
    info = pc.info()
    assert (info.rank, info.size, info.local_rank, info.local_size, info.groups) == (0, 1, 0, 1, 1)
