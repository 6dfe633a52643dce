"""When something goes wrong every rank raises the right type, soon, and says who is to blame."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest

import pycollective as pc
from pycollective import testing

SOON_S = 20  # far below the default timeout of 600 s, far above what a loaded machine needs


def outcome(call: Any) -> tuple[str, str, float]:
    """Type and message of the error that `call` raises, and how long that took."""
    began = time.monotonic()
    try:
        call()
    except (pc.CollectiveError, KeyboardInterrupt) as error:
        return type(error).__name__, str(error), time.monotonic() - began
    return "nothing", "", time.monotonic() - began


DISAGREEMENTS: dict[str, tuple[Any, Any]] = {
    "count": (lambda: pc.allreduce(np.zeros(4)), lambda: pc.allreduce(np.zeros(5))),
    "dtype": (lambda: pc.allreduce(np.zeros(4, np.float32)), lambda: pc.allreduce(np.zeros(4, np.int32))),
    "op": (lambda: pc.allreduce(np.zeros(4), "sum"), lambda: pc.allreduce(np.zeros(4), "max")),
    "call": (lambda: pc.allreduce(np.zeros(4)), lambda: pc.barrier()),
    "message": (lambda: (pc.send(np.zeros(4), 1), pc.barrier()), lambda: pc.recv(np.zeros(5), 0)),
}


def disagree(what: str) -> tuple[str, str, float]:
    return outcome(DISAGREEMENTS[what][pc.rank()])


@pytest.mark.parametrize("what", DISAGREEMENTS)
def test_ranks_that_disagree_raise_a_mismatch(what: str) -> None:
    results = testing.run(disagree, 2, what)
    assert "CollectiveMismatch" in [kind for kind, _, _ in results]
    for kind, message, seconds in results:
        assert kind != "nothing"
        assert seconds < SOON_S, message


def wait_for_an_absent_rank() -> Any:
    x = np.zeros(3)
    if pc.rank() == 1:
        return outcome(lambda: pc.recv(x, 0))[0]  # ends when rank 0 has given up
    try:
        pc.allreduce(x, timeout=0.3)
    except pc.CollectiveTimeout as error:
        assert error.rank == 0
        assert error.peer == 1
        assert "allreduce" in (error.operation or "")
        assert error.elapsed_s is not None
        assert 0.3 <= error.elapsed_s < SOON_S
    else:
        raise AssertionError("nobody was there")
    return outcome(lambda: pc.barrier())[0]


def test_a_rank_that_does_not_come_is_a_timeout_that_names_it() -> None:
    later, other = testing.run(wait_for_an_absent_rank, 2)
    assert later == "Aborted"
    assert other in ("Aborted", "PeerFailure", "PeerExited")


def die_or_wait(how: str) -> Any:
    pc.barrier()
    if pc.rank() == 1:
        if how == "exit":
            os._exit(3)
        os.kill(os.getpid(), signal.SIGKILL)
    return outcome(lambda: pc.allreduce(np.zeros(1000)))


@pytest.mark.parametrize("how", ["exit", "kill"])
def test_a_rank_that_dies_is_a_peer_failure_on_all_others(how: str) -> None:
    with pytest.raises(testing.WorldFailed) as failed:
        testing.run(die_or_wait, 3, how)
    assert set(failed.value.errors) == {1}
    kinds = {rank: result[0] for rank, result in failed.value.results.items()}
    assert set(kinds) == {0, 2}
    assert set(kinds.values()) <= {"PeerFailure", "PeerExited", "Aborted"}
    assert {"PeerFailure", "PeerExited"} & set(kinds.values())
    assert all(seconds < SOON_S for _, _, seconds in failed.value.results.values())


def interrupted() -> Any:
    if pc.rank() == 1:
        return outcome(lambda: pc.recv(np.zeros(1), 0))[0]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    over = threading.Event()

    def press_ctrl_c_until_it_is_over() -> None:  # the first may come before the call has begun
        while not over.wait(0.1):
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press_ctrl_c_until_it_is_over)
    kinds = []
    try:
        thread.start()
        while "Aborted" not in kinds:  # that is what a call says when an earlier one was interrupted
            kinds.append(outcome(lambda: pc.recv(np.zeros(1), 1))[0])
    except KeyboardInterrupt:
        kinds.append("between two calls")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    over.set()
    thread.join()
    return kinds


def test_ctrl_c_ends_a_waiting_call() -> None:
    kinds, other = testing.run(interrupted, 2)
    assert kinds[0] == "KeyboardInterrupt"
    assert set(kinds) <= {"KeyboardInterrupt", "Aborted", "between two calls"}
    assert other in ("Aborted", "PeerFailure", "PeerExited", "PeerInterrupted")


class Alarm(Exception):
    pass


def alarmed() -> Any:
    def ring(*_: Any) -> None:
        raise Alarm

    if pc.rank() == 1:
        return outcome(lambda: pc.recv(np.zeros(1), 0))[0]
    signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        pc.recv(np.zeros(1), 1)
    except Alarm:
        return "Alarm"
    return "nothing"


def test_what_a_signal_handler_raises_comes_out_of_the_waiting_call() -> None:
    assert testing.run(alarmed, 2)[0] == "Alarm"


def absent() -> Any:
    if os.environ["PYCOLLECTIVE_RANK"] == "1":
        return None
    return outcome(lambda: pc.init(timeout=0.5))


def test_init_names_the_ranks_that_never_came() -> None:
    (kind, message, seconds), _ = testing.run(absent, 2, init=False)
    assert kind == "CollectiveTimeout"
    assert "1" in message
    assert seconds < SOON_S


def shut_down_alone() -> Any:
    if pc.rank() == 1:
        return outcome(lambda: pc.recv(np.zeros(1), 0))[0]
    kind = outcome(lambda: pc.shutdown(timeout=0.3))[0]
    assert not pc.is_initialized()
    return kind


def test_shutdown_gives_up_at_its_deadline_and_has_left_all_the_same() -> None:
    kind, other = testing.run(shut_down_alone, 2)
    assert kind in ("CollectiveTimeout", "CollectiveMismatch")
    assert other != "nothing"


def leave_without_shutdown() -> None:
    pc.init()
    pc.allreduce(np.ones(1))


def test_a_process_may_end_without_shutdown() -> None:
    assert testing.run(leave_without_shutdown, 2, init=False) == [None, None]
