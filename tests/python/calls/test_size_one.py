"""A world of one: every call returns what it was given, by value and by identity."""

from __future__ import annotations

import array
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from arrays import DTYPES, LIBRARIES, Dlpack, OldDlpack

import pycollective as pc
from pycollective.runtime import lifetime

each_library = pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)


@each_library
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (2, 3)], ids=str)
def test_in_place_calls_return_the_very_array(
    world_of_one: pc.Group, library: Any, dtype: str, shape: Any
) -> None:
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape) + 1
    x = library.make(values, dtype)
    assert pc.allreduce(x) is x
    assert pc.allreduce(x, "max") is x
    assert pc.broadcast(x, root=0) is x
    assert pc.reduce(x, root=0) is x
    assert world_of_one.allreduce(x, op="min", timeout=1) is x
    np.testing.assert_array_equal(library.to_numpy(x).astype(float), values)


@each_library
def test_out_gets_the_result_and_x_stays(world_of_one: pc.Group, library: Any) -> None:
    x, out = library.make([1, 2, 3], "float32"), library.make([0, 0, 0], "float32")
    assert pc.allreduce(x, out=out) is out
    np.testing.assert_array_equal(library.to_numpy(out), [1, 2, 3])
    assert pc.allreduce(x, "avg", out=x) is x


def test_a_read_only_array_may_be_read(world_of_one: pc.Group) -> None:
    x = np.arange(3.0)
    x.flags.writeable = False
    out = np.zeros(3)
    pc.allreduce(x, out=out)
    assert out.tolist() == [0, 1, 2]
    assert pc.broadcast(x, root=0) is x


def test_operation_aliases_and_run_time_strings_are_understood(world_of_one: pc.Group) -> None:
    x = np.ones(2, np.float32)
    for op in ("add", "mean", "".join(["s", "um"]), "prod", "min", "max", "avg"):
        assert pc.allreduce(x, op).tolist() == [1, 1]
    assert pc.allreduce(x, **{"".join(["o", "p"]): "max"}) is x


def test_anything_with_a_buffer_or_dlpack_is_an_array(world_of_one: pc.Group) -> None:
    exporters = Dlpack(np.arange(3.0)), OldDlpack(np.arange(3.0))
    for x in (bytearray(8), array.array("d", [1, 2]), memoryview(bytearray(4)), *exporters):
        assert pc.broadcast(x) is x
    x = Dlpack(np.arange(3.0))
    holders = sys.getrefcount(x.x)
    pc.allreduce(x)
    after = sys.getrefcount(x.x)  # not inside the assert, which holds references of its own
    assert after == holders


def test_a_buffer_is_released_after_the_call(world_of_one: pc.Group) -> None:
    x = bytearray(8)
    pc.allreduce(x)
    x.extend(b"more")  # BufferError while any reference to the memory remains


def test_rank_and_size_of_a_world_of_one(world_of_one: pc.Group) -> None:
    assert (pc.rank(), pc.size(), pc.local_rank(), pc.local_size()) == (0, 1, 0, 1)
    assert pc.world() is world_of_one
    assert repr(world_of_one) == "<pycollective.Group rank 0 of 1>"
    assert isinstance(pc.explain("allreduce", nbytes=1 << 20), str)
    assert pc.barrier() is None


def test_init_again_with_the_same_arguments_returns_the_world() -> None:
    group = pc.init(timeout=30)
    assert pc.init(timeout=30.0) is pc.world()
    with pytest.raises(pc.InvalidArgument, match="now timeout=40, before timeout=30"):
        pc.init(timeout=40)
    with pytest.raises(pc.InvalidArgument, match="with other arguments: now timeout=None, before timeout=30"):
        pc.init()
    with pytest.raises(pc.InvalidArgument, match="now address='127.0.0.1:4711', rank=0, size=5"):
        pc.init("127.0.0.1:4711", rank=0, size=5, timeout=30)
    assert pc.allreduce(1) == 1
    assert group.size == 1
    pc.shutdown()
    pc.init()
    assert pc.init("env://").size == 1  # the same arguments, written as a URL
    pc.shutdown()


def test_a_world_knows_its_arguments_as_soon_as_it_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread may call init() with the same arguments at once."""
    made = lifetime.become_world

    def then_again(*arguments: Any, **named: Any) -> pc.Group:
        world = made(*arguments, **named)
        assert pc.init(timeout=30) is world
        return world

    monkeypatch.setattr(lifetime, "become_world", then_again)
    pc.init(timeout=30)
    pc.shutdown()


def test_init_works_again_after_shutdown_and_old_groups_say_so() -> None:
    x = np.ones(2)
    for _ in range(3):
        group = pc.init()
        pc.allreduce(x)
        pc.shutdown()
        pc.shutdown()  # without a world: nothing to do
        with pytest.raises(pc.NotInitialized, match="shut down"):
            group.allreduce(x)
        assert "shut down" in repr(group)
    assert not pc.is_initialized()


def test_before_init_every_call_names_the_line_to_write() -> None:
    x = np.ones(2)
    for call in (
        lambda: pc.allreduce(x),
        lambda: pc.barrier(),
        pc.rank,
        pc.size,
        pc.world,
        lambda: pc.explain("barrier"),
    ):
        with pytest.raises(pc.NotInitialized, match=r"pycollective\.init\(\)"):
            call()


def test_init_by_hand_of_one_rank_needs_no_address() -> None:
    assert pc.init(rank=0, size=1).size == 1
    pc.shutdown()


def test_functions_travel_through_pickle() -> None:
    assert pickle.loads(pickle.dumps(pc.allreduce)) == pc.allreduce


def test_calls_leak_no_references(world_of_one: pc.Group) -> None:
    x, out = np.ones(3), np.ones(3)
    before = [sys.getrefcount(o) for o in (x, out, world_of_one, None)]
    for _ in range(100):
        pc.allreduce(x, "avg", out=out)
        pc.broadcast(x, root=0)
        pc.barrier()
        with pytest.raises(pc.InvalidArgument):
            pc.allreduce(x, out=out[:2])
    after = [sys.getrefcount(o) for o in (x, out, world_of_one, None)]
    assert after[:3] == before[:3]
    assert after[3] - before[3] < 50


def test_a_forked_child_must_not_use_its_parents_world() -> None:
    script = """
import os, sys
import numpy as np
import pycollective as pc
from pycollective.runtime import lifetime
pc.init()
child = os.fork()
if child == 0:
    try:
        pc.allreduce(np.ones(1))
    except pc.ForkedProcess:
        pc.init()
        pc.allreduce(np.ones(1))
        sys.exit(7)
    sys.exit(1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert subprocess.run([sys.executable, "-c", script], timeout=60, check=False).returncode == 7
