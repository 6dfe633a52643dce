"""Several TCP connections between two ranks are as exact, and fail as soon, as one."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest

import pycollective as pc
from pycollective import testing

COUNT = 100_003  # of float32: parts that do not fit into whole cache lines
SOON_S = 20


@pytest.fixture(autouse=True)
def three_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYCOLLECTIVE_TRANSPORT", "tcp")
    monkeypatch.setenv("PYCOLLECTIVE_TCP_SOCKETS", "3")


def of(rank: int, count: int = COUNT) -> np.ndarray:
    return (np.arange(count) % 1000 + 1000 * rank).astype(np.float32)


def everything_is_exact() -> None:
    me, ranks = pc.rank(), pc.size()
    total = sum(of(rank) for rank in range(ranks))
    for root in range(ranks):
        assert np.array_equal(pc.allreduce(of(me)), total)
        assert np.array_equal(pc.broadcast(of(me), root), of(root))
        reduced = pc.reduce(of(me), root=root)
        assert me != root or np.array_equal(reduced, total)
        whole = np.concatenate([of(rank) for rank in range(ranks)])
        assert np.array_equal(pc.allgather(of(me)), whole)
        assert np.array_equal(pc.reduce_scatter(np.tile(of(me), ranks)), total)
        assert np.array_equal(pc.alltoall(np.tile(of(me), ranks)), whole)
    arrays = [of(me, 200_000), of(me, 3), of(me, COUNT)]
    pc.allreduce(arrays)
    assert [a[-1] for a in arrays] == [sum(of(r, a.size)[-1] for r in range(ranks)) for a in arrays]
    to, source = (me + 1) % ranks, (me - 1) % ranks
    for count in (1, 16_384, 16_385, COUNT, 4_000_000):
        sent = pc.send_async(of(me, count), to)
        assert np.array_equal(pc.recv(None, source), of(source, count))  # neither size nor dtype is known
        sent.wait()
        sent = pc.send_async(of(me, count), to)
        assert np.array_equal(pc.recv(np.empty(count, np.float32), source), of(source, count))
        sent.wait()


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_collectives_and_messages_are_exact(ranks: int) -> None:
    testing.run(everything_is_exact, ranks)


def disagree_and_go_on() -> None:
    with pytest.raises(pc.CollectiveMismatch):
        pc.allreduce(of(0, COUNT if pc.rank() == 0 else 30_000))
    assert np.array_equal(pc.allreduce(of(pc.rank())), of(0) + of(1))


def test_after_a_mismatch_of_sizes_the_group_goes_on() -> None:
    testing.run(disagree_and_go_on, 2)


def die_when_changed(array: np.ndarray) -> None:
    while array[0] == 1:
        pass
    os.kill(os.getpid(), signal.SIGKILL)


def reduce_until_that_fails(array: np.ndarray) -> None:
    while True:
        pc.allreduce(array, "max" if array[0] > 1 else "sum")


def die_in_a_large_call() -> float:
    big = np.ones(8 << 20, np.float32)
    pc.barrier()
    if pc.rank() == 1:
        threading.Thread(target=die_when_changed, args=(big,)).start()
    began = time.monotonic()
    with pytest.raises(pc.PeerFailure, match="rank 1"):
        reduce_until_that_fails(big)  # one call is in progress when the other rank dies
    return time.monotonic() - began


def test_a_rank_that_dies_in_the_middle_of_a_split_message_is_named_soon() -> None:
    with pytest.raises(testing.WorldFailed) as raised:
        testing.run(die_in_a_large_call, 2)
    assert raised.value.errors.keys() == {1}, raised.value
    assert raised.value.results[0] < SOON_S


def init_with(sockets: list[str]) -> str:
    os.environ["PYCOLLECTIVE_TCP_SOCKETS"] = sockets[int(os.environ["PYCOLLECTIVE_RANK"])]
    with pytest.raises(pc.CollectiveMismatch) as raised:
        pc.init(timeout=SOON_S)
    return str(raised.value)


def test_ranks_that_were_given_different_numbers_are_reported_at_init() -> None:
    for message in testing.run(init_with, 3, ["2", "2", "4"], init=False):
        assert "rank 2 was started with PYCOLLECTIVE_TCP_SOCKETS=4 and rank 0 with 2" in message
