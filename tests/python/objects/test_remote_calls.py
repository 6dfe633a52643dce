"""pc.serving and pc.call: functions that other ranks run."""

from __future__ import annotations

import concurrent.futures
import importlib.util
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import named_checks
import numpy as np
import pytest

import pycollective as pc
from pycollective import testing
from pycollective.objects import object_call, objects
from pycollective.training import remote_calls
from pycollective.training.remote_calls import rpc_channel

CHECKS = named_checks.Checks()


def echo(*args: Any, **kwargs: Any) -> list[Any]:
    return [pc.rank(), args, kwargs]


def named_so(function: str, *, rank: int = 0) -> list[Any]:
    return [function, rank]


def fails(path: str) -> None:
    raise FileNotFoundError(2, "no such thing", path)


class OfItsOwn(Exception):
    pass


def fails_strangely() -> None:
    raise OfItsOwn("no more")


noted: list[tuple[int, int]] = []


def note(by: int, number: int) -> None:
    noted.append((by, number))


def open_file() -> object:
    return open


def until_informed(by: int) -> str:
    pc.store().set(f"begun {by}", True)
    pc.store().wait(f"informed {by}")
    return f"late {by}"


def in_a_block(*functions: Callable[..., object]) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """The check runs in a block that serves these functions. The group is usable afterwards."""

    def decorate(check: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            with pc.serving(*functions):
                check()
            assert pc.allreduce(1) == pc.size()

        run.__name__ = check.__name__
        return run

    return decorate


@CHECKS.on(1, 2, 3, 4)
@in_a_block(echo)
def every_rank_calls_every_rank_and_itself() -> None:
    for rank in range(pc.size()):
        assert pc.call(echo, pc.rank(), rank=rank, x="y") == [rank, (pc.rank(),), {"x": "y"}]
        assert pc.call("echo", rank=rank) == [rank, (), {}]


@CHECKS.on(1, 2)
@in_a_block(named_so)
def a_function_may_call_its_arguments_as_call_does() -> None:
    for rank in range(pc.size()):
        assert pc.call(named_so, function="f", rank=rank) == ["f", 0]


@CHECKS.on(2, 3)
@in_a_block(until_informed, echo, fails)
def calls_go_on_in_the_background() -> None:
    me, last = pc.rank(), pc.size() - 1
    array = np.ones(3)
    if me == 0:
        waiting = [pc.call_async(until_informed, peer, rank=peer) for peer in range(1, last + 1)]
        assert not any(future.done() for future in waiting)
        for peer in range(1, last + 1):
            pc.store().set(f"informed {peer}", True)
        assert [future.result() for future in waiting] == [f"late {peer}" for peer in range(1, last + 1)]
    copied = pc.call_async(echo, array, rank=last)
    array[:] = 7
    _, (back,), _ = copied.result()
    assert (back == (7 if me == last else 1)).all(), "on this rank it is the array itself"
    with pytest.raises(FileNotFoundError):
        pc.call_async(fails, "nowhere", rank=0).result()
    with pytest.raises(pc.InvalidArgument, match=r"call_async\(echo\): rank must be"):
        pc.call_async(echo, rank=pc.size())
    pc.call_async(echo, 1, rank=0)  # the end of the block waits for it


@CHECKS.on(1, 2, 3)
def calls_of_a_thread_to_a_rank_run_in_their_order() -> None:
    noted.clear()
    pc.barrier()
    with pc.serving(note):
        for number in range(20):
            for peer in range(pc.size()):
                pc.call_async(note, pc.rank(), number, rank=peer)
    for by in range(pc.size()):
        assert [number for each, number in noted if each == by] == list(range(20))


@CHECKS.on(2)
@in_a_block(echo)
def values_travel_as_objects_do() -> None:
    value = {"a": (1, 2.5, None, b"x"), "b": {3}, "c": np.arange(6, dtype=np.int16).reshape(2, 3)}
    _, (back,), _ = pc.call(echo, value, rank=1 - pc.rank())
    assert back["a"] == value["a"]
    assert back["b"] == value["b"]
    np.testing.assert_array_equal(back["c"], value["c"])
    back["c"][:] = 0  # a copy, and writable
    if importlib.util.find_spec("torch"):
        import torch

        _, _, named = pc.call(echo, rank=1 - pc.rank(), x=torch.ones(3))
        assert torch.equal(named["x"], torch.ones(3))


@CHECKS.on(2, 3)
@in_a_block(echo)
def large_values_cross_each_other_from_several_threads() -> None:
    x = np.arange(1 << 18) + pc.rank()
    peers = [peer for peer in range(pc.size()) if peer != pc.rank()] * 3
    with concurrent.futures.ThreadPoolExecutor(len(peers)) as threads:
        for _, (back,), _ in threads.map(lambda peer: pc.call(echo, x, rank=peer), peers):
            np.testing.assert_array_equal(back, x)


@CHECKS.on(2, 3)
@in_a_block(fails, echo)
def an_exception_is_raised_at_the_caller_and_the_server_goes_on() -> None:
    peer = (pc.rank() + 1) % pc.size()
    with pytest.raises(FileNotFoundError, match="/no/such") as caught:
        pc.call(fails, "/no/such", rank=peer)
    assert caught.value.filename == "/no/such"
    cause = caught.value.__cause__
    assert isinstance(cause, pc.RemoteError)
    assert cause.peer == peer
    assert 'raise FileNotFoundError(2, "no such thing", path)' in str(cause)
    assert pc.call(echo, rank=peer)[0] == peer


@CHECKS.on(2)
@in_a_block(fails_strangely, echo)
def an_exception_of_an_unknown_type_comes_as_remote_error() -> None:
    with pytest.raises(pc.RemoteError, match="no more"):
        pc.call(fails_strangely, rank=1 - pc.rank())
    with pytest.raises(OfItsOwn):
        pc.call(fails_strangely, rank=pc.rank())


@CHECKS.on(2)
@in_a_block(open_file, echo)
def what_cannot_be_sent_raises_at_the_caller_either_way() -> None:
    with pytest.raises(pc.InvalidArgument, match=r"call\(echo\): \(args, kwargs\)\[0\]\[1\] is"):
        pc.call(echo, 1, open, rank=1 - pc.rank())
    with pytest.raises(pc.InvalidArgument, match=r"the result of open_file\(\) is"):
        pc.call(open_file, rank=1 - pc.rank())
    assert pc.call(echo, rank=1 - pc.rank())[0] == 1 - pc.rank()


@CHECKS.on(2, 3)
@in_a_block(until_informed, echo)
def a_late_answer_is_not_given_to_the_next_call() -> None:
    if pc.rank() == 0:
        return
    with pytest.raises(
        pc.CollectiveTimeout, match=r"call\(until_informed, rank=0\).* gave up after"
    ) as caught:
        pc.call(until_informed, pc.rank(), rank=0, timeout=0.05)
    assert caught.value.peer == 0
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        second = thread.submit(pc.call, echo, "second", rank=0)
        pc.store().set(f"informed {pc.rank()}", True)
        assert second.result()[1] == ("second",)


@CHECKS.on(2)
@in_a_block(echo)
def a_large_call_that_is_given_up_while_it_is_sent_leaves_nothing_behind() -> None:
    for _ in range(3):
        with pytest.raises(pc.CollectiveTimeout, match=r"call\(echo, rank="):
            pc.call(echo, np.zeros(1 << 20), rank=1 - pc.rank(), timeout=0)
        assert pc.call(echo, 7, rank=1 - pc.rank())[1] == (7,)


def begins_to_send(group: pc.Group, obj: object, peer: int, *, tag: int, timeout: float | None) -> None:
    message = object_call.Call("send_object", group, False, None, None).pack(obj)
    group.send(message.header(), peer, tag=tag)
    if obj is not None:
        raise pc.CollectiveTimeout


@CHECKS.on(3)
@in_a_block(echo)
def a_call_that_was_given_up_keeps_no_other_caller_waiting() -> None:
    if pc.rank() == 1:
        send_object, objects.send_object = objects.send_object, begins_to_send
        with pytest.raises(pc.CollectiveTimeout):
            pc.call(echo, np.zeros(1 << 20), rank=0)
        objects.send_object = send_object
        pc.store().set("given up", True)
        pc.store().wait("answered")
    if pc.rank() == 2:
        pc.store().wait("given up")
        pc.call(echo, rank=0, timeout=10)
        pc.store().set("answered", True)


@CHECKS.on(2)
def a_server_without_calls_waits_on() -> None:
    rpc_channel.LOOK_S, before = 0.0, rpc_channel.LOOK_S
    try:
        with pc.serving(echo):
            for _ in range(20):
                pc.call(echo, rank=1 - pc.rank())
    finally:
        rpc_channel.LOOK_S = before


@CHECKS.on(1, 2)
def outside_of_a_block_there_are_no_calls() -> None:
    with pytest.raises(pc.InvalidArgument, match=r"call\(echo\): this process serves nothing"):
        pc.call(echo, rank=0)
    with pc.serving(echo):
        pass
    with pytest.raises(pc.InvalidArgument, match="serves nothing"):
        pc.call("echo", rank=0)


@CHECKS.on(1, 2)
@in_a_block(echo, fails)
def bad_calls_are_refused_at_once() -> None:
    def namesake() -> None: ...

    namesake.__name__ = "echo"
    with pytest.raises(pc.InvalidArgument, match=r"call\(open\): it is not served here, only echo, fails"):
        pc.call(open, "/etc/passwd", rank=0)
    with pytest.raises(pc.InvalidArgument, match="not served"):
        pc.call("exec", "1", rank=0)
    with pytest.raises(pc.InvalidArgument, match="not served"):
        pc.call(namesake, rank=0)
    with pytest.raises(pc.InvalidArgument, match="rank must be between 0 and"):
        pc.call(echo, rank=pc.size())
    with pytest.raises(pc.InvalidArgument, match="rank must be between 0 and"):
        pc.call(echo, rank=-1)
    with pytest.raises(pc.InvalidArgument, match="timeout"):
        pc.call(echo, rank=0, timeout=-1)
    with pytest.raises(TypeError):
        pc.call(echo)  # type: ignore[call-overload]


@CHECKS.on(2)
@in_a_block(echo)
def the_server_itself_runs_nothing_but_what_it_serves() -> None:
    service = remote_calls._service
    assert service is not None
    with pytest.raises(pc.InvalidArgument, match="'exec' is not served"):
        service.call("exec", ("1",), {}, 1 - pc.rank(), None)


BAD: dict[str, tuple[Callable[..., object], ...]] = {
    "no function": (),
    "a lambda": (echo, lambda: 1),
    "two of a name": (echo, echo),
    "no callable": (echo, 3),  # type: ignore[dict-item]
}


@CHECKS.on(2, 3)
def functions_that_cannot_be_served_raise_on_all_ranks() -> None:
    for functions in BAD.values():
        with (
            pytest.raises(pc.InvalidArgument, match="serving: "),
            pc.serving(*(functions if pc.rank() == 1 else (echo,))),
        ):
            raise AssertionError
    with (
        pytest.raises(pc.InvalidArgument, match="timeout"),
        pc.serving(echo, timeout=-1 if pc.rank() == 1 else None),
    ):
        raise AssertionError
    with pc.serving(echo):
        pc.call(echo, rank=0)


@CHECKS.on(2, 3)
def ranks_that_serve_different_functions_all_raise() -> None:
    with (
        pytest.raises(pc.CollectiveMismatch, match="rank 1 serves echo, fails, rank 0 echo"),
        pc.serving(*((echo, fails) if pc.rank() == 1 else (echo,))),
    ):
        raise AssertionError
    assert pc.allreduce(1) == pc.size()


@CHECKS.on(1, 2)
@in_a_block(echo)
def a_block_in_a_block_is_refused() -> None:
    with pytest.raises(pc.InvalidArgument, match="already"), pc.serving(echo):
        raise AssertionError
    pc.call(echo, rank=0)


def calls_on(rank: int) -> object:
    return pc.call(echo, rank=rank)


def adds_up() -> object:
    return pc.allreduce(1)


@CHECKS.on(2, 3)
@in_a_block(calls_on, adds_up, echo)
def what_would_wait_inside_a_served_function_is_refused() -> None:
    peer = (pc.rank() + 1) % pc.size()
    with pytest.raises(pc.InvalidArgument, match="inside a function that is being served"):
        pc.call(calls_on, pc.rank(), rank=peer)
    with pytest.raises(pc.InvalidArgument, match="inside a function that is being served"):
        pc.call(calls_on, peer, rank=pc.rank())
    assert pc.call(calls_on, peer, rank=peer) == [peer, (), {}]  # on its own rank it just runs
    with pytest.raises(pc.InvalidArgument, match=r"inside adds_up\(\), which is being served"):
        pc.call(adds_up, rank=peer)


RUNNING: list[int] = []


def alone_in_here() -> int:
    RUNNING.append(1)
    together = len(RUNNING)
    threading.Event().wait(0.001)  # lets other calls begin, if they may
    RUNNING.pop()
    return together


@CHECKS.on(3)
@in_a_block(alone_in_here)
def functions_of_a_rank_run_one_at_a_time() -> None:
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        together = list(threads.map(lambda _: pc.call(alone_in_here, rank=0), range(20)))
    assert together == [1] * 20


@CHECKS.on(2, 3)
@in_a_block(echo)
def a_rank_at_the_end_of_the_block_still_serves() -> None:
    if pc.rank() == 0:
        pc.store().set("leaving", True)
    else:
        pc.store().wait("leaving")
        for _ in range(5):
            assert pc.call(echo, rank=0)[0] == 0


@CHECKS.on(2)
def the_end_waits_for_calls_of_other_threads() -> None:
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        with pc.serving(until_informed):
            if pc.rank() == 1:
                late = thread.submit(pc.call, until_informed, 1, rank=0)
            pc.store().wait("begun 1")
            if pc.rank() == 0:
                pc.store().set("informed 1", True)
        if pc.rank() == 1:
            assert late.result() == "late 1"


@CHECKS.on(1, 2)
def the_end_waits_for_what_other_threads_run_here() -> None:
    begun, end = threading.Event(), threading.Event()

    def until_end() -> str:
        begun.set()
        end.wait()
        return "ended"

    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        with pc.serving(until_end):
            here = thread.submit(pc.call, until_end, rank=pc.rank())
            begun.wait()
            threading.Timer(0.05, end.set).start()
        assert end.is_set()
        assert here.result() == "ended"


@CHECKS.on(2, 3)
def an_exception_in_a_block_is_raised_on_all() -> None:
    def block() -> None:
        with pc.serving(until_informed, echo):
            if pc.rank() == 1:
                if pc.size() == 3:
                    pc.store().wait("begun 2")
                raise KeyError("data")
            if pc.rank() == 2:  # in a call that would get no answer
                pc.call(until_informed, 2, rank=0)

    with pytest.raises(KeyError, match="data") as caught:
        block()
    if pc.rank() != 1:
        assert isinstance(caught.value.__cause__, pc.RemoteError)
        assert 'raise KeyError("data")' in str(caught.value.__cause__)
    assert pc.allreduce(1) == pc.size()
    with pc.serving(until_informed):  # an answer from the failed block is not taken for one of this block
        if pc.rank() == 0:
            pc.store().wait("begun 4")
            pc.store().set("informed 2", True)
            threading.Event().wait(0.05)
            pc.store().set("informed 4", True)
        if pc.rank() == pc.size() - 1:
            assert pc.call(until_informed, 4, rank=0) == "late 4"


@CHECKS.on(2)
def an_exit_in_a_block_is_raised_on_all() -> None:
    def block() -> None:
        with pc.serving(echo):
            if pc.rank() == 0:
                raise SystemExit(3)

    with pytest.raises(SystemExit if pc.rank() == 0 else pc.RemoteError):
        block()


@CHECKS.on(4)
def groups_have_blocks_of_their_own() -> None:
    pair = pc.world().split(pc.rank() % 2)
    assert pair is not None
    for _ in range(3):
        with pc.serving(echo, group=pair):
            assert pc.call(echo, rank=1 - pair.rank)[0] == pair.ranks[1 - pair.rank]


@CHECKS.on(2)
@in_a_block(echo)
def messages_and_collectives_of_the_program_go_on_beside_it() -> None:
    peer = 1 - pc.rank()
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        calls = [thread.submit(pc.call, echo, i, rank=peer) for i in range(20)]
        for i in range(20):
            pc.send(np.full(3, i), peer)
            assert pc.recv(None, pc.ANY_SOURCE)[0] == i
            assert pc.allreduce(1) == 2
        assert [each.result()[1] for each in calls] == [(i,) for i in range(20)]


WEIGHTS = np.zeros(3)


def pull() -> Any:
    return WEIGHTS


def push(gradient: Any) -> None:
    WEIGHTS[:] -= 0.125 * gradient


@CHECKS.on(3)
def an_asynchronous_parameter_server_converges() -> None:
    """Linear regression: two workers step independently, with weights that may be a step old."""
    truth = np.array([1.0, -2.0, 3.0])
    rows = np.random.default_rng(pc.rank()).standard_normal((32, 3))
    with pc.serving(pull, push):
        if pc.rank() != 0:
            for _ in range(200):
                errors = rows @ (pc.call(pull, rank=0) - truth)
                pc.call(push, rows.T @ errors / len(rows), rank=0)
    if pc.rank() == 0:
        np.testing.assert_allclose(WEIGHTS, truth, atol=1e-6)


@pytest.mark.parametrize(("size", "name"), CHECKS.rows())
def test_on_every_rank(size: int, name: str) -> None:
    named_checks.assert_passed(__name__, size, name)


def dies() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def calls_one_that_dies() -> None:
    with pc.serving(dies, until_informed):
        if pc.rank() == 2:
            pc.call(until_informed, 2, rank=1)
        if pc.rank() == 1:
            pc.call(dies, rank=0)


def one_that_called_dies() -> None:
    with pc.serving(echo):
        if pc.rank() == 2:
            pc.call(echo, rank=0)
            dies()


def assert_all_others_are_informed_of_the_death(dead: int, block: Callable[[], None]) -> None:
    with pytest.raises(testing.WorldFailed) as caught:
        testing.run(block, 3, timeout_s=20)
    for rank in {0, 1, 2} - {dead}:
        error = caught.value.errors[rank].exception
        assert isinstance(error, pc.PeerFailure)
        assert error.peer == dead


def test_the_death_of_a_server_ends_all_calls() -> None:
    assert_all_others_are_informed_of_the_death(0, calls_one_that_dies)


def test_the_death_of_a_caller_is_raised_at_the_end_of_the_block() -> None:
    assert_all_others_are_informed_of_the_death(2, one_that_called_dies)
