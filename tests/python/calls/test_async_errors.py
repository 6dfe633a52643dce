"""Calls in the background that fail: which rank is informed of what, and when."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from waiting import eventually

import pycollective as pc
from pycollective import testing


def has_failed(work: pc.Work[Any]) -> bool:
    return eventually(lambda: work.info()["state"] == "failed")


def issued(calls: list[Any]) -> list[pc.Work[Any]]:
    """Returns the work of each call. Repeats a call that raises the previous failure."""
    works = []
    for call in calls:
        try:
            works.append(call())
        except pc.CollectiveMismatch:
            works.append(call())
    return works


def other_order() -> str:
    calls: list[Any] = [lambda: pc.allreduce_async(np.zeros(4)), lambda: pc.broadcast_async(np.zeros(5))]
    if pc.rank() == 1:
        calls.reverse()
    texts = []
    for work in issued(calls):
        with pytest.raises(pc.CollectiveMismatch) as caught:
            work.wait()
        texts.append(str(caught.value))
    pc.resync()
    assert pc.allreduce(np.ones(1))[0] == pc.size()
    return "".join(texts)


def test_calls_in_another_order_are_a_mismatch_that_names_both() -> None:
    for text in testing.run(other_order, 2, env={"PYCOLLECTIVE_CHECK": "strict"}):
        assert "allreduce float64[4]" in text
        assert "broadcast float64[5]" in text


def sums_in_another_order() -> list[tuple[Any, ...]]:
    calls: list[Any] = [
        lambda: pc.allreduce_async(np.zeros(4)),
        lambda: pc.reduce_scatter_async(np.zeros(6, np.int32), "max"),
        lambda: pc.allgather_async(np.zeros(5)),
    ]
    if pc.rank() == 1:
        calls[0], calls[2] = calls[2], calls[0]
    errors = [(type(error).__name__, str(error)) for work in issued(calls) if (error := work.exception())]
    assert pc.allreduce(np.ones(1))[0] == pc.size()
    return errors


def test_each_of_two_swapped_calls_is_a_mismatch_that_names_both_and_the_one_between_is_right() -> None:
    for errors in testing.run(sums_in_another_order, 3):
        assert [kind for kind, _ in errors] == ["CollectiveMismatch"] * 2
        for _, text in errors:
            assert "allreduce float64[4]" in text
            assert "allgather float64[15]" in text
            assert text.count("test_async_errors.py:") == 2, "and where each was made"


def lists_of_other_lengths() -> list[str]:
    said = []
    for lists in (
        [[np.ones(3), np.ones(5)], [np.ones(5), np.ones(3)]],  # as many elements in all
        [[np.ones(4), np.ones(4)], [np.ones(8)]],
        [{"a": np.ones(2), "b": np.ones((2, 3))}, {"a": np.ones((2, 3)), "b": np.ones(2)}],
    ):
        with pytest.raises(pc.CollectiveMismatch) as caught:
            pc.allreduce(lists[pc.rank() == 1])
        said.append(str(caught.value))
    assert pc.allreduce([np.ones(2)])[0].tolist() == [3.0, 3.0]
    return said


def test_lists_of_other_lengths_are_a_mismatch_that_names_both() -> None:
    for said in testing.run(lists_of_other_lengths, 3):
        for text in said:
            assert text.count("allreduce float64[8] sum") == 2
            assert text.count(", list of ") == 2, text
            assert "Lists must be equal in order, keys, dtypes and shapes; this rank's is x[" in text


def failure_without_a_wait() -> None:
    work = pc.allreduce_async(np.zeros(4 + pc.rank()))
    assert has_failed(work)
    del work
    with pytest.raises(pc.CollectiveMismatch, match=r"(?s)allreduce #2.*no thread waited"):
        pc.allreduce(np.ones(1))
    assert pc.allreduce(np.ones(1))[0] == pc.size()


def test_a_failure_without_a_wait_is_raised_by_the_next_call() -> None:
    testing.run(failure_without_a_wait, 2)


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def overdue_together() -> None:
    if pc.rank() == 1:
        pc.send(np.array([os.getpid()]), 0)
        pc.recv(np.zeros(1), 0)
        pc.resync()
        return
    pid = int(pc.recv(np.zeros(1, np.int64), 1)[0])
    os.kill(pid, signal.SIGSTOP)
    try:
        assert eventually(lambda: is_stopped(pid))
        works = [pc.recv_async(np.zeros(10), 1, tag=tag, timeout=0.3) for tag in range(10)]
        works += [pc.allreduce_async(np.zeros(10), timeout=0.3) for _ in range(10)]
        assert all(has_failed(work) for work in works)
    finally:
        os.kill(pid, signal.SIGCONT)
    late = [elapsed for work in works if (elapsed := work.info()["elapsed_s"]) > 0.3 + 2]
    assert not late, "each waited for what the stopped rank would say to those before it"
    for work in works:
        error = work.exception()
        assert isinstance(error, pc.CollectiveTimeout)
        assert "rank 1" in str(error)
        assert "does not answer" in str(error), error
    pc.send(np.zeros(1), 1)
    pc.resync()


def test_calls_that_are_overdue_together_end_together_and_say_what_is_known_of_the_late_rank() -> None:
    testing.run(overdue_together, 2)


def bad_arguments() -> None:
    with pytest.raises(pc.InvalidArgument, match="allreduce_async: x"):
        pc.allreduce_async(np.zeros((4, 4))[:, 1])
    with pytest.raises(TypeError, match="recv_async"):
        pc.recv_async(np.zeros(1), "1")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"allreduce_async\(\) got an unexpected keyword argument 'root'"):
        pc.allreduce_async([np.zeros(1)], root=0)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"wait\(\)"):
        pc.barrier_async().wait(when=3)  # type: ignore[call-arg]
    assert pc.allreduce_async(np.ones(1)).wait()[0] == pc.size()
    assert pc.allreduce_async(x=[np.ones(1)]).wait()[0] == pc.size()


def test_bad_arguments_are_refused_before_a_byte_is_sent() -> None:
    testing.run(bad_arguments, 2)


def peer_dies() -> None:
    if pc.rank() == 1:
        pc.recv(np.zeros(1), 0)
        os._exit(3)
    work = pc.allreduce_async(np.zeros(4))
    pc.send(np.zeros(1), 1)
    with pytest.raises(pc.PeerFailure):
        work.wait()


def test_the_death_of_a_peer_is_raised_by_wait() -> None:
    with pytest.raises(testing.WorldFailed) as caught:
        testing.run(peer_dies, 2)
    assert set(caught.value.errors) == {1}, caught.value
