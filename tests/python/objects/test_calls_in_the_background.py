"""pc.call_async: its Futures, its threads, and the order of the calls to the own rank."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable
from typing import Any

import named_checks
import pytest
import waiting

import pycollective as pc
from pycollective.training import remote_calls

CHECKS = named_checks.Checks()


class Gate:
    """Two functions: one signals its start and ends when it may, the other records that it ran."""

    def __init__(self) -> None:
        self.ran: list[int] = []
        self.begun = threading.Event()
        self.may_end = threading.Event()

    def functions(self) -> tuple[Callable[[int], int], Callable[[int], int]]:
        def held(number: int) -> int:
            self.begun.set()
            self.may_end.wait()
            return note(number)

        def note(number: int) -> int:
            self.ran.append(number)
            return number

        return held, note


def threads_of_calls() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("pc-call")]


@CHECKS.on(1, 2)
def calls_of_both_kinds_to_this_rank_run_in_their_order() -> None:
    gate, me = Gate(), pc.rank()
    held, note = gate.functions()
    with pc.serving(held, note):
        pc.call_async(held, 0, rank=me)
        for number in range(1, 50):
            pc.call_async(note, number, rank=me)
        gate.may_end.set()
        assert pc.call(note, 50, rank=me) == 50
        pc.call_async(note, 51, rank=me)
        assert pc.call(note, 52, rank=me) == 52
    assert gate.ran == list(range(53))
    assert waiting.eventually(lambda: not threads_of_calls())


@CHECKS.on(1, 2)
def after_a_failure_no_function_starts_on_this_rank() -> None:
    gate, me = Gate(), pc.rank()
    held, note = gate.functions()
    futures: list[concurrent.futures.Future[int]] = []

    def block(thread: concurrent.futures.Executor) -> None:
        with pc.serving(held, note):
            service = remote_calls._service
            assert service is not None
            futures.append(pc.call_async(held, 0, rank=me))
            gate.begun.wait()
            futures.extend(pc.call_async(note, number, rank=me) for number in range(1, 4))
            futures.append(thread.submit(pc.call, note, 4, rank=me))
            assert waiting.eventually(lambda: len(service._calls) == 5)
            pc.barrier()
            raise KeyError("data")

    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        with pytest.raises(KeyError):  # does not wait for the running function
            block(thread)
        for future in futures[1:]:
            with pytest.raises(KeyError):
                future.result()
        gate.may_end.set()
        assert futures[0].result() == 0
    assert waiting.eventually(lambda: not threads_of_calls())
    assert gate.ran == [0]


@CHECKS.on(1, 2)
def a_call_to_this_rank_that_is_late_does_not_run_and_the_others_keep_their_order() -> None:
    gate, me = Gate(), pc.rank()
    held, note = gate.functions()
    with pc.serving(held, note):
        pc.call_async(held, 0, rank=me)
        gate.begun.wait()
        pc.call_async(note, 1, rank=me)
        late = pc.call_async(note, 2, rank=me, timeout=0)
        with pytest.raises(pc.CollectiveTimeout, match=r"gave up after .* s\. It has not run and will not"):
            late.result()
        pc.call_async(note, 3, rank=me)
        with pytest.raises(pc.CollectiveTimeout, match=r"gave up after .* s\. It has not run and will not"):
            pc.call(note, 4, rank=me, timeout=0)
        gate.may_end.set()
        pc.call(note, 5, rank=me)
    assert gate.ran == [0, 1, 3, 5]


@CHECKS.on(1, 2)
def without_a_thread_there_is_no_call() -> None:
    gate, me = Gate(), pc.rank()
    held, note = gate.functions()
    start = threading.Thread.start

    def all_but(name: str) -> Callable[[threading.Thread], None]:
        def start_others(thread: threading.Thread) -> None:
            if thread.name == name:
                raise RuntimeError("can't start new thread")
            start(thread)

        return start_others

    with pc.serving(held, note):
        for name in ("pc-call-results", "pc-call-here"):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(threading.Thread, "start", all_but(name))
                with pytest.raises(
                    pc.CollectiveError, match=rf"call_async\(note, rank={me}\) on rank {me} needs"
                ):
                    pc.call_async(note, 0, rank=me)
        assert pc.call_async(note, 1, rank=me).result() == 1
    assert gate.ran == [1]


@CHECKS.on(2)
def calls_that_wait_have_no_threads_of_their_own() -> None:
    gate = Gate()
    held, note = gate.functions()
    with pc.serving(held, note):
        futures = [pc.call_async(held, number, rank=1 - pc.rank()) for number in range(100)]
        assert threads_of_calls() == ["pc-call-results"]
        pc.barrier()
        gate.may_end.set()
        assert [future.result() for future in futures] == list(range(100))


@CHECKS.on(2)
def a_late_call_is_said_to_be_late_while_others_wait_on() -> None:
    gate = Gate()
    held, note = gate.functions()
    with pc.serving(held, note):
        patient = pc.call_async(held, 0, rank=1 - pc.rank())
        with pytest.raises(pc.CollectiveTimeout, match="It may run there all the same"):
            pc.call_async(held, 1, rank=1 - pc.rank(), timeout=0.05).result()
        assert not patient.done()
        pc.barrier()
        gate.may_end.set()
        assert patient.result() == 0


@CHECKS.on(1, 2)
def what_is_added_to_a_future_may_make_calls() -> None:
    gate, peer = Gate(), pc.size() - 1 - pc.rank()
    held, note = gate.functions()
    results: list[Any] = []
    with pc.serving(held, note):
        future = pc.call_async(note, 1, rank=peer)
        future.add_done_callback(lambda _: results.append(pc.call(note, 2, rank=peer)))
        assert waiting.eventually(lambda: results == [2])


@pytest.mark.parametrize(("size", "name"), CHECKS.rows())
def test_on_every_rank(size: int, name: str) -> None:
    named_checks.assert_passed(__name__, size, name)
