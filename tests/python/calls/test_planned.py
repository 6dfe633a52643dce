"""plan_allreduce(): a call that checks its arguments once, and what must not change afterwards."""

from __future__ import annotations

import array
import gc
import re
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from arrays import Dlpack, torch

import pycollective as pc
from pycollective import testing


def refused(call: pc.PlannedCall[Any], why: str) -> None:
    with pytest.raises(pc.InvalidArgument, match=why):
        call()


def one_array() -> None:
    rank, size = pc.rank(), pc.size()
    x = np.zeros((2, 3))
    call = pc.plan_allreduce(x)
    assert (x == 0).all(), "planning makes no call"
    for i in range(5):
        x[...] = np.arange(6).reshape(2, 3) + rank * i
        assert call() is x
        assert (x == np.arange(6).reshape(2, 3) * size + i * sum(range(size))).all()
    y = np.empty((2, 3))
    highest = pc.plan_allreduce(x, "max", out=y)
    x[...] = rank
    assert highest() is y
    assert (y == size - 1).all()
    assert (x == rank).all()
    nothing = np.zeros((0, 3))
    assert pc.plan_allreduce(nothing)() is nothing
    assert repr(call) == "<pycollective.PlannedCall allreduce>"


def lists() -> None:
    rank, size = pc.rank(), pc.size()
    tensor = torch.zeros(4) if torch is not None else np.zeros(4, np.float32)
    x = {"b": [np.zeros(3), np.zeros((2, 2), np.int64)], "a": tensor, "c": (np.zeros(()), np.zeros(0))}
    arrays = [x["a"], *x["b"], *x["c"]]
    call = pc.plan_allreduce(x, "max")
    for i in range(4):
        for place, each in enumerate(arrays):
            each[...] = rank + i + place
        assert call() is x
        for place, each in enumerate(arrays):
            assert bool((each == size - 1 + i + place).all())
    pc.allreduce(x)  # the same arrays
    none: list[Any] = []
    assert pc.plan_allreduce(none)() is none
    many = [np.full(100 + i, float(rank + i)) for i in range(161)]
    pc.plan_allreduce(many, "avg", reproducible="shape")()
    for i, each in enumerate(many):
        assert (each == (size - 1) / 2 + i).all()


def what_the_core_cannot_take() -> None:
    """Arrays that the core cannot take are converted again in each call."""
    rank, size = pc.rank(), pc.size()
    total = sum(range(size))
    whole = np.zeros((4, 6))
    call = pc.plan_allreduce(whole[:, 1:3])
    mixed = [np.zeros(3), np.zeros((4, 4)).T[1:]]
    planned = pc.plan_allreduce(mixed)
    for _ in range(3):
        whole[...] = rank
        call()
        assert (whole[:, 1:3] == total).all()
        assert (whole[:, 3:] == rank).all()
        for each in mixed:
            each[...] = rank
        assert planned() is mixed
        assert all((each == total).all() for each in mixed)
    assert pc.plan_allreduce(rank)() == total
    assert pc.plan_allreduce([rank, 1])() == [total, size]
    leaves = np.full((2, 3), float(rank))
    assert (pc.plan_allreduce(leaves, reproducible="world")() == 2 * total).all()


def other_exporters() -> None:
    rank, size = pc.rank(), pc.size()
    memory = np.zeros(5)
    shared = pc.zeros(5)
    with pc.heap_arrays():
        inside = np.zeros((3, 5))
    numbers = array.array("d", [0.0] * 5)
    rows = [(Dlpack(memory), memory), (memoryview(memory), memory), (shared, shared), (inside, inside)]
    rows.append((numbers, np.frombuffer(numbers)))
    for x, values in rows:
        call, both = pc.plan_allreduce(x), pc.plan_allreduce([x, np.zeros(3)])
        for each in (call, both):
            values[...] = rank + 1
            each()
            assert (values == sum(range(size + 1))).all()


def on_groups() -> None:
    rank, size = pc.rank(), pc.size()
    half = pc.world().split(rank % 2)
    assert half is not None
    x = np.zeros(3)
    call = half.plan_allreduce(x)
    for _ in range(2):
        x[:] = rank
        call()
        assert (x == sum(range(rank % 2, size, 2))).all()


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("what", [one_array, lists, what_the_core_cannot_take, other_exporters, on_groups])
def test_each_call_does_what_allreduce_does(what: Any, n: int) -> None:
    testing.run(what, n, timeout_s=60)


@pytest.mark.parametrize("name", ["PYCOLLECTIVE_TRANSPORT=tcp", "PYCOLLECTIVE_CHECK=strict"])
@pytest.mark.parametrize("what", [one_array, lists])
def test_over_tcp_and_with_strict_checks_too(what: Any, name: str) -> None:
    testing.run(what, 2, timeout_s=60, env=dict([name.split("=")]))


def among_plain_calls() -> None:
    """The plan sends the same messages as the plain call, so ranks may mix the two."""
    rank, size = pc.rank(), pc.size()
    x, pair = np.zeros(3), [np.zeros(2), np.zeros(3)]
    call, both = pc.plan_allreduce(x), pc.plan_allreduce(pair)
    for i in range(6):
        x[:] = pair[0][:] = pair[1][:] = rank
        if (i + rank) % 2:
            call()
            both()
        else:
            pc.allreduce(x)
            pc.allreduce(pair)
        for each in (x, *pair):
            assert (each == sum(range(size))).all()


@pytest.mark.parametrize("n", [2, 4])
def test_ranks_may_mix_planned_and_plain_calls(n: int) -> None:
    testing.run(among_plain_calls, n, timeout_s=60)


def disagree() -> list[str]:
    rank = pc.rank()
    said = []
    calls = [
        pc.plan_allreduce(np.zeros(3 + rank)),
        pc.plan_allreduce(np.zeros(3), "sum" if rank else "max"),
        pc.plan_allreduce([np.zeros(2 + rank), np.zeros(3 - rank)]),
    ]
    for call in calls:
        with pytest.raises(pc.CollectiveMismatch) as error:
            call()
        said.append(str(error.value))
    x = np.ones(2)
    assert (pc.plan_allreduce(x)() == pc.size()).all(), "the group goes on"
    return said


def test_a_mismatch_is_the_plain_calls() -> None:
    for said in testing.run(disagree, 2, timeout_s=60):
        assert all("allreduce" in each and "test_planned.py" in each for each in said)
        assert "Lists must be equal in order" in said[2]


def late() -> str:
    """The second plan is older than its timeout, which starts with the call."""
    gate = pc.world().split(0)
    assert gate is not None
    said, token = "", np.zeros(1)
    first = pc.plan_allreduce(np.zeros(3), timeout=LATE_S)
    second = gate.plan_allreduce(np.zeros(3), timeout=LATE_S)
    if gate.rank == 1:
        gate.recv(token, 0)  # until the call of the other rank has timed out
    try:
        first()
    except pc.CollectiveTimeout as error:
        said = str(error)
    if gate.rank == 0:
        gate.send(token, 1)
    gate.barrier()
    second()
    return said


LATE_S = 3


def test_the_timeout_is_that_of_each_call() -> None:
    first, second = testing.run(late, 2, timeout_s=60)
    assert re.search(rf"on rank 0 after {LATE_S}(\.\d+)? s", first)
    assert "gave up" in second


# ---- changes of a planned array


def test_numpy_arrays_that_changed_are_refused(world_of_one: pc.Group) -> None:
    x = np.ones(6)
    call = pc.plan_allreduce(x)
    with pytest.raises(ValueError, match="resize"):
        x.resize(100)  # the plan refers to it
    x.resize(6000, refcheck=False)
    refused(call, r"allreduce: x is float64 of shape \(6000,\) now, but was float64 of shape \(6,\)")
    x = np.ones(6)
    call = pc.plan_allreduce(x)
    x.shape = (2, 3)
    refused(call, r"shape \(2, 3\) now")
    x.shape = (6,)
    assert call() is x
    x.flags.writeable = False
    refused(call, "allreduce: x is read-only")
    x.flags.writeable = True
    y = np.ones(6)
    call = pc.plan_allreduce(x, out=y)
    y.shape = (3, 2)
    refused(call, r"allreduce: out is float64 of shape \(3, 2\) now")
    pair = [np.ones(3), np.ones(4)]
    call = pc.plan_allreduce(pair)
    pair[1].shape = (2, 2)
    refused(call, r"an array of x is float64 of shape \(2, 2\) now")


def test_exporters_of_memory_cannot_resize_it(world_of_one: pc.Group) -> None:
    x = bytearray(b"abc")
    call = pc.plan_allreduce(x)
    with pytest.raises(BufferError):
        x.append(1)
    assert call() is x
    del call
    x.append(1)
    wrapped = Dlpack(np.ones(3))
    call = pc.plan_allreduce(wrapped)
    assert call() is wrapped
    wrapped.x = np.ones(3)
    refused(call, "the memory of x lies elsewhere now")
    numbers = array.array("d", [1.0, 2.0])
    with pytest.raises(BufferError):
        pc.plan_allreduce(numbers), numbers.append(3.0)


def test_lists_that_hold_other_arrays_are_refused(world_of_one: pc.Group) -> None:
    inner = [np.ones(2)]
    x: dict[str, Any] = {"a": np.ones(3), "b": inner}
    call = pc.plan_allreduce(x)
    inner.append(np.ones(2))
    refused(call, "a list in x has 2 members now, but had 1 when")
    inner.pop()
    assert call() is x
    kept, x["a"] = x["a"], np.ones(3)
    refused(call, "another object at 'a'")
    x["a"] = kept
    assert call() is x
    del x["a"]
    x["c"] = kept
    refused(call, "another object at 'a'")
    first, second = np.ones(2), np.ones(2)
    pair = [first, second]
    call = pc.plan_allreduce(pair)
    pair.reverse()
    refused(call, "another object at 0")
    numbers = [np.ones((4, 4)).T, np.ones(2)]
    call = pc.plan_allreduce(numbers)
    numbers[1] = np.ones(2)
    refused(call, "another object at 1")


class Meddler(Dlpack):
    """A request for its memory changes another array."""

    other: np.ndarray[Any, Any] | None = None

    def __dlpack__(self, **words: Any) -> Any:
        if self.other is not None:
            self.other.shape = (2, 3)
        return super().__dlpack__(**words)


def test_what_changes_while_the_others_are_looked_at_is_refused(world_of_one: pc.Group) -> None:
    x = np.ones(6)
    meddler = Meddler(np.ones(3, np.int64))
    for arrays in ([x, meddler], [meddler, x], [x, meddler, np.ones(2, np.int32)]):
        x.shape = (6,)
        call = pc.plan_allreduce(arrays)
        call()
        meddler.other = x
        refused(call, r"of shape \(2, 3\) now")
        meddler.other = None


@pytest.mark.skipif(torch is None, reason="no torch")
def test_tensors_that_moved_are_refused(world_of_one: pc.Group) -> None:
    for planned in (lambda t: pc.plan_allreduce(t), lambda t: pc.plan_allreduce([t, torch.ones(2)])):
        t = torch.ones(6)
        call = planned(t)
        version = t._version
        call()
        assert t._version > version
        t.resize_(2, 3)
        refused(call, r"of shape \(2, 3\) now")
        t = torch.ones(6)
        call = planned(t)
        t.set_(torch.ones(6).untyped_storage(), 0, (6,))
        refused(call, "lies elsewhere")
        t = torch.ones(6)
        call = planned(t)
        t.data = torch.ones(6)
        refused(call, "lies elsewhere")
        t = torch.ones(6)
        call = planned(t)
        t.untyped_storage().resize_(0)
        refused(call, "no memory")
        t = torch.ones(6)
        call = planned(t)
        t.mul_(torch.ones(6, requires_grad=True))
        refused(call, "requires grad")


def test_what_cannot_be_right_is_refused_when_it_is_planned(world_of_one: pc.Group) -> None:
    x = np.ones(4)
    frozen = np.ones(4)
    frozen.flags.writeable = False
    rows: list[tuple[Any, str]] = [
        (lambda: pc.plan_allreduce(frozen), "plan_allreduce: x is read-only .*or out="),
        (lambda: pc.plan_allreduce(x, "total"), 'plan_allreduce: op "total"'),
        (lambda: pc.plan_allreduce(x[1:], out=x[:3]), "overlaps"),
        (lambda: pc.plan_allreduce([x, x]), "plan_allreduce: .* share memory"),
        (lambda: pc.plan_allreduce([x, np.ones(2)], out=x), "out= is for one array"),
        (lambda: pc.plan_allreduce(object()), "plan_allreduce: x"),
        (lambda: pc.plan_allreduce([x, object()]), "plan_allreduce: x"),
        (lambda: pc.plan_allreduce(x, timeout=-1), "0 or more"),
        (lambda: pc.plan_allreduce(x, "minloc"), "pairs"),
        (lambda: pc.plan_allreduce(np.ones((4, 4)).T, "band"), "plan_allreduce: x.*band"),
    ]
    for plan, why in rows:
        with pytest.raises(pc.CollectiveError, match=why):
            plan()
    call = pc.plan_allreduce(x)
    with pytest.raises(TypeError, match="no arguments"):
        call(1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="no arguments"):
        call(timeout=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        pc.PlannedCall()


def test_leaves_are_looked_at_when_they_are_planned(world_of_one: pc.Group) -> None:
    x = np.ones((2, 3))
    rows: list[tuple[Any, Any, str]] = [
        ([x, x], {}, "not a list"),
        ({"a": x}, {}, "not a dict"),
        (x, {"op": "total"}, 'plan_allreduce: op "total"'),
        (x, {"op": "avg"}, "takes op sum, .*not 'avg'"),
        (x, {"out": x}, "gives a new array"),
        (np.float64(1), {}, "0-d"),
        (object(), {}, "plan_allreduce: x"),
        (np.array(["a"]), {}, "plan_allreduce: x"),
    ]
    for leaves, words, why in rows:
        with pytest.raises(pc.CollectiveError, match=why):
            pc.plan_allreduce(leaves, reproducible="world", **words)


def test_a_list_in_itself_is_refused(world_of_one: pc.Group) -> None:
    """Runs in a process of its own, because a failure would end this one."""
    x: list[Any] = []
    x.append(x)
    y: dict[str, Any] = {}
    y["y"] = (y,)
    for each in (x, y):
        with pytest.raises(RecursionError):
            pc.plan_allreduce(each)
        with pytest.raises(pc.InvalidArgument):
            pc.plan_allreduce(each, reproducible="world")
        with pytest.raises(RecursionError):
            world_of_one._plan_staged(list, each)


def ends() -> None:
    x, pair = np.ones(2), [np.ones(2), np.ones(3, np.int32)]
    calls = [pc.plan_allreduce(x), pc.plan_allreduce(pair), pc.plan_allreduce(np.ones((3, 3)).T)]
    for call in calls:
        call()
    pc.shutdown()
    for call in calls:
        with pytest.raises(pc.NotInitialized):
            call()
    with pytest.raises(pc.NotInitialized):
        pc.plan_allreduce(x)
    pc.init()
    for call in calls:
        with pytest.raises(pc.NotInitialized, match="shut down"):
            call()
    pc.plan_allreduce(x)()


@pytest.mark.parametrize("n", [1, 2])
def test_a_plan_ends_with_its_world(n: int) -> None:
    testing.run(ends, n, timeout_s=60)


class Array(np.ndarray[Any, Any]):
    """A subclass of arrays that may have attributes."""


def test_arrays_that_hold_their_plans_are_collected(world_of_one: pc.Group) -> None:
    for plan in (lambda x: pc.plan_allreduce(x), lambda x: pc.plan_allreduce([x, np.ones(2)])):
        x = np.ones(3).view(Array)
        x.plan = plan(x)  # type: ignore[attr-defined]
        x.plan()  # type: ignore[attr-defined]
        gone = weakref.ref(x)
        del x
        gc.collect()
        assert gone() is None


class Bytes(bytearray):
    """A subclass of bytearray with attributes."""


def test_so_are_exporters_of_memory(world_of_one: pc.Group) -> None:
    for plan in (lambda x: pc.plan_allreduce(x), lambda x: pc.plan_allreduce([x, np.ones(2)])):
        x = Bytes(b"abc")
        x.plan = plan(x)  # type: ignore[attr-defined]
        x.plan()  # type: ignore[attr-defined]
        gone = weakref.ref(x)
        del x
        gc.collect()
        assert gone() is None


def test_a_plan_keeps_its_arrays(world_of_one: pc.Group) -> None:
    x = np.ones(1000)
    gone = weakref.ref(x)
    call = pc.plan_allreduce([x])
    del x
    gc.collect()
    assert (call()[0] == 1).all()
    del call
    assert gone() is None


def in_threads() -> None:
    """One plan each, one group each."""
    groups = [pc.world().split(0) for _ in range(2)]
    arrays = [np.zeros(100) for _ in groups]

    def work(place: int) -> None:
        group = groups[place]
        assert group is not None
        x = arrays[place]
        call = group.plan_allreduce(x)
        for i in range(200):
            x[:] = i + place
            call()
            assert (x == (i + place) * group.size).all()

    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(work, place) for place in range(2)]:
            done.result(timeout=50)


def test_threads_may_have_plans_of_their_own() -> None:
    testing.run(in_threads, 2, timeout_s=60)
