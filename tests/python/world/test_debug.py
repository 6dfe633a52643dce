"""dump() reports this rank and its calls, as its types promise."""

from __future__ import annotations

import _thread
import asyncio
import json
import os
import threading
import types
import typing
from collections.abc import Iterator

import numpy as np
import pytest

import pycollective as pc
from pycollective import _core, testing
from pycollective.debug import Call, Dump


def as_promised(value: object, promised: typing.Any) -> bool:
    if typing.is_typeddict(promised):
        fields = typing.get_type_hints(promised)
        return value.keys() == fields.keys() and all(as_promised(value[k], t) for k, t in fields.items())
    if typing.get_origin(promised) is list:
        return isinstance(value, list) and all(as_promised(v, typing.get_args(promised)[0]) for v in value)
    if isinstance(promised, types.UnionType):
        return any(as_promised(value, one) for one in typing.get_args(promised))
    return type(value) is promised


def test_a_dump_says_which_rank_it_is_of(world_of_one: pc.Group) -> None:
    dump = pc.debug.dump()
    assert as_promised(dump, Dump)
    assert (dump["rank"], dump["size"], dump["pid"]) == (0, 1, os.getpid())
    assert dump["host"] == os.uname().nodename
    assert json.loads(json.dumps(dump)) == dump


def test_without_a_world_there_is_nothing_to_dump() -> None:
    with pytest.raises(pc.NotInitialized):
        pc.debug.dump()
    assert json.loads(_core._flight_record()) == []


def make_calls() -> list[Call]:
    pc.allreduce(np.ones(1000, np.float32), "max")
    with pytest.raises(pc.CollectiveTimeout):
        pc.recv(np.ones(3), 1 - pc.rank(), tag=9, timeout=0)
    pc.barrier()  # here
    return pc.debug.dump()["calls"]


def test_a_dump_has_the_calls_oldest_first_and_the_lines_that_made_them() -> None:
    with open(__file__) as source:
        line = next(n for n, text in enumerate(source, 1) if text.endswith("# here\n"))
    for calls in testing.run(make_calls, 2):
        assert all(as_promised(call, Call) for call in calls)
        allreduce, recv, barrier = calls[-3:]
        assert (allreduce["collective"], allreduce["dtype"], allreduce["op"]) == (
            "allreduce",
            "float32",
            "max",
        )
        assert (allreduce["count"], allreduce["state"], allreduce["result"]) == (1000, "done", "ok")
        assert allreduce["root_or_peer"] is None
        assert (recv["kind"], recv["count"], recv["tag"], recv["result"]) == ("recv", 3, 9, "timeout")
        assert (barrier["collective"], barrier["dtype"], barrier["count"]) == ("barrier", None, None)
        assert barrier["sequence"] == allreduce["sequence"] + 1
        assert allreduce["began_s"] <= recv["began_s"] <= barrier["began_s"] <= -barrier["elapsed_s"] <= 0
        assert barrier["site"] == f"world/test_debug.py:{line} in make_calls"


def called_by(file: str) -> str:
    """Returns the recorded line of a call that code in this file of the package makes."""
    names: dict[str, typing.Any] = {"pc": pc}
    exec(
        compile("def call(): pc.barrier(); done()", os.path.join(os.path.dirname(pc.__file__), file), "exec"),
        names,
    )
    without_other_callers = threading.Event()
    names["done"] = without_other_callers.set
    _thread.start_new_thread(names["call"], ())
    assert without_other_callers.wait(30)
    for _ in range(2):
        names["call"]()  # there
    return pc.debug.dump()["calls"][-1]["site"]


def test_a_call_is_its_program_s_and_our_own_programs_are_some() -> None:
    with open(__file__) as source:
        line = next(n for n, text in enumerate(source, 1) if text.endswith("# there\n"))
    mine = f"world/test_debug.py:{line} in called_by"
    assert testing.run(called_by, 2, "calls/coalesce.py") == [mine] * 2
    assert testing.run(called_by, 2, "tools/compare/x.py") == ["compare/x.py:1 in call"] * 2


class BarrierAtEnd:
    __del__ = staticmethod(pc.barrier)  # called by the interpreter while it clears a frame


def dies(_: int) -> None:
    _kept = BarrierAtEnd()


def in_a_generator() -> Iterator[None]:
    yield pc.barrier()


async def in_a_coroutine() -> None:
    pc.barrier()


def call_from_everywhere() -> list[str | None]:
    for _ in range(2):  # the second time the place is known
        next(in_a_generator())
        asyncio.run(in_a_coroutine())
        list(map(dies, [0]))
        list(map(pc.allreduce, [np.ones(1)]))
    return [call["site"] for call in pc.debug.dump()["calls"]]


def test_the_line_is_right_for_every_caller() -> None:
    names = ["in_a_generator", "in_a_coroutine", None, "call_from_everywhere"] * 2
    for sites in testing.run(call_from_everywhere, 2):
        for site, name in zip(sites[-len(names) :], names, strict=True):
            assert site is not None
            assert "test_debug.py:" in site
            if name is not None:  # a finalizer's caller is whichever frame the interpreter shows
                assert site.endswith(f" in {name}")
