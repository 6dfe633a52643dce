"""What test_gpu_arrays.py checks of calls through the host and of unsupported arrays.

The core cannot take some of these arrays. gpu_checking.py runs the checks.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from fake_cupy import fake_cupy
from fake_gpus import Array, Gpu
from gpu_checking import check, on_ranks, raises, ranks, run_checks

import pycollective as pc
from pycollective import _core


@ranks(3)
def what_nccl_has_not_goes_through_the_host(group: _core.Group, gpu: Gpu) -> None:
    stream = gpu.stream()
    values = np.arange(5, dtype=np.int16) + group.rank
    for name, keywords in {
        "allreduce": {"op": "max"},
        "reduce": {"op": "bxor", "root": 0},
        "scan": {},
        "exscan": {},
    }.items():
        here, there = values.copy(), Array(gpu, values, stream)
        getattr(group, name)(here, **keywords)
        assert getattr(group, name)(there, **keywords) is there
        assert np.array_equal(there.host, here), name
        if name == "reduce":
            continue
        work = getattr(group, f"{name}_async")(again := Array(gpu, values, stream), **keywords)
        assert work.wait() is again
        gpu.drain(stream)
        assert np.array_equal(again.host, here), name
        assert work.wait(host=True) is again
        assert work.done()
    fixed = Array(gpu, [0.5 * group.rank], stream)
    group.allreduce(fixed, reproducible="shape")
    assert fixed.host.tolist() == [1.5]


@ranks(2)
def arrays_behind_each_other_may_be_allocations_of_their_own(group: _core.Group, gpu: Gpu) -> None:
    memory = np.zeros(12, np.uint8)
    parts: Any = [
        Array(gpu, np.full(3, 10 * i + group.rank), dtype=np.int16).move_to(gpu, memory[6 * i :])
        for i in range(2)
    ]
    group.allreduce(parts)  # of a type that NCCL does not have
    gpu.drain(None)
    assert [part.host.tolist() for part in parts] == [[1] * 3, [21] * 3]
    group.send(parts, 1) if group.rank == 0 else group.recv(parts, 0)


@ranks(3)
def messages_between_gpus(group: _core.Group, gpu: Gpu) -> None:
    after, before = (group.rank + 1) % 3, (group.rank + 2) % 3
    x, y = Array(gpu, np.full(4, group.rank)), Array(gpu, np.zeros(4, np.int64))
    receiving, sending = group.recv_async(y, before), group.send_async(x, after)
    assert receiving.wait(host=True) is y
    sending.wait(host=True)
    assert y.host.tolist() == [before] * 4
    assert group.sendrecv(x, before, after, out=y) is y
    assert y.host.tolist() == [after] * 4
    if group.rank == 0:
        group.send(x, 1, tag=7)
        group.send(Array(gpu, np.full(4, 5)), 1, tag=8)
        group.send([Array(gpu, [1.5]), Array(gpu, [2.5, 3.5])], 1)  # type: ignore[list-item]
    elif group.rank == 1:
        assert group.recv(None, 0, tag=7).tolist() == [0] * 4
        assert group.recv(y, pc.ANY_SOURCE, tag=8, with_source=True) == (y, 0)
        assert y.host.tolist() == [5] * 4
        parts: Any = [Array(gpu, [0.0]), Array(gpu, [0.0, 0.0])]
        group.recv(parts, 0)
        assert [part.host.tolist() for part in parts] == [[1.5], [2.5, 3.5]]


@ranks(3)
def large_messages_go_from_gpu_to_gpu(group: _core.Group, gpu: Gpu) -> None:
    count, after, before = 40_000, (group.rank + 1) % 3, (group.rank + 2) % 3
    x, y = (
        Array(gpu, np.full(count, float(group.rank)), gpu.stream()),
        Array(gpu, np.zeros(count), gpu.stream()),
    )
    receiving, sending = group.recv_async(y, before), group.send_async(x, after)
    assert receiving.wait(host=True) is y
    assert sending.wait() is x
    assert y.host.tolist() == [before] * count
    y = Array(gpu, np.zeros(count), x.stream)
    assert group.sendrecv(x, before, after, out=y) is y
    gpu.drain(x.stream)
    assert y.host.tolist() == [after] * count
    explained = group.explain("send", device="cuda")
    assert f"to rank {after}: by NCCL" in explained, explained
    assert f"from rank {before}: by NCCL" in explained, explained
    if group.rank == 0:  # the other end of a message may be an array of the host
        group.send(x, 1, tag=7)
        group.send(x, 1, tag=8)
        group.send(np.full(count, 3.0), 1, tag=9)
        assert group.recv_async(y, 1, tag=9).exception() is None
        assert y.host.tolist() == [4.0] * count
        raises(pc.CollectiveMismatch, r"rank 1 expects float64\[50000\]", lambda: group.send(x, 1))
        group.send(x, 1)
    elif group.rank == 1:
        assert group.recv(None, 0, tag=7).tolist() == [0] * count
        assert group.recv(y, pc.ANY_SOURCE, tag=8, with_source=True) == (y, 0)
        gpu.drain(y.stream)
        assert y.host.tolist() == [0] * count
        group.recv(y, 0, tag=9)
        gpu.drain(y.stream)
        assert y.host.tolist() == [3.0] * count
        group.send(np.full(count, 4.0), 0, tag=9)
        more = Array(gpu, np.zeros(50_000), x.stream)
        raises(pc.CollectiveMismatch, "sent another array, from a GPU", lambda: group.recv(more, 0))
        group.recv(x, 0)
        gpu.drain(x.stream)
        assert x.host.tolist() == [0] * count


@ranks(3)
def parts_of_different_sizes(group: _core.Group, gpu: Gpu) -> None:
    counts = [1, 2, 3]
    mine = Array(gpu, np.full((counts[group.rank], 2), float(group.rank)))
    whole = Array(gpu, np.zeros((6, 2)))
    assert group.allgather(mine, out=whole, counts=counts) is whole
    gpu.drain(whole.stream)
    assert whole.host[:, 0].tolist() == [0, 1, 1, 2, 2, 2]
    back = Array(gpu, np.zeros((counts[group.rank], 2)))
    group.reduce_scatter(whole, out=back, counts=counts)
    gpu.drain(back.stream)
    assert np.array_equal(back.host, 3 * mine.host)


@ranks(2)
def a_planned_call_goes_behind_the_stream_of_the_moment(group: _core.Group, gpu: Gpu) -> None:
    x, y = Array(gpu, [1.0], gpu.stream()), Array(gpu, [3.0], gpu.stream())
    one: Any = group.plan_allreduce(x)
    several: Any = group.plan_allreduce([x, y])  # type: ignore[type-var]
    assert one() is x
    x.stream = y.stream
    several()
    gpu.drain(y.stream)
    assert (x.host.tolist(), y.host.tolist()) == ([4.0], [6.0])


@check
def ranks_with_arrays_on_the_cpu_take_part_where_calls_go_through_the_host() -> None:
    def body(group: _core.Group, gpu: Gpu) -> None:
        x: Any = np.array([1.0]) if group.rank == 1 else Array(gpu, [1.0])
        group.allreduce(x)
        assert (x if group.rank == 1 else x.host).tolist() == [3.0]

    os.environ["PYCOLLECTIVE_GPU"] = "staged"
    try:
        on_ranks(3, body)
    finally:
        del os.environ["PYCOLLECTIVE_GPU"]


@ranks(2)
def views_with_gaps_are_copied_by_cupy(group: _core.Group, gpu: Gpu) -> None:
    sys.modules["cupy"] = fake_cupy
    fake_cupy.here.gpu = gpu
    x = fake_cupy.ndarray(gpu, np.arange(4.0) + group.rank)
    x.shape, x.strides = (2,), (16,)
    assert group.allreduce(x) is x
    gpu.drain(x.stream)
    assert x.elements.tolist() == [1.0, 5.0]
    group.barrier()
    sys.modules.pop("cupy", None)


@ranks(3)
def a_scatter_to_a_gpu_without_out_is_refused_on_all(group: _core.Group, gpu: Gpu) -> None:
    whole = Array(gpu, np.arange(12.0)) if group.rank == 1 else None
    message = (
        "^scatter: x lies on a GPU" if group.rank == 1 else "^rank 1: x lies on a GPU.*pass out= on all ranks"
    )
    raises(pc.Unsupported, message, lambda: group.scatter(whole, 1))
    raises(pc.Unsupported, message, lambda: group.scatter(whole, 1, axis=1))
    mine = Array(gpu, np.zeros(4))
    group.scatter(whole, 1, out=mine)
    gpu.drain(mine.stream)
    assert mine.host.tolist() == list(range(4 * group.rank, 4 * group.rank + 4))


@ranks(2)
def a_reducers_places_are_parts_of_its_buckets(group: _core.Group, gpu: Gpu) -> None:
    fake_cupy.here.gpu = gpu
    sys.modules["cupy"] = fake_cupy
    parameters = {"a": fake_cupy.ndarray(gpu, np.zeros((2, 3))), "b": fake_cupy.ndarray(gpu, np.zeros(4))}
    reducer = pc.GradientReducer(parameters, group=group)
    for step in range(2):
        reduced = reducer.reduce({"b": fake_cupy.ndarray(gpu, np.full(4, 1.0 * step + group.rank))})
        gpu.drain(reduced["b"].stream)
        assert reduced["a"].host.tolist() == [[0] * 3] * 2
        assert reduced["b"].host.tolist() == [step + 0.5] * 4
    raises(
        pc.Unsupported,
        "on a GPU is for torch's alone",
        lambda: pc.GradientReducer(parameters, group=group, compression="f16"),
    )
    group.barrier()
    sys.modules.pop("cupy", None)


@contextlib.contextmanager
def variable(group: _core.Group, name: str, value: str) -> Iterator[None]:
    """Sets it for all ranks, which are threads of one process."""
    before = os.environ.get(name)
    group.barrier()
    os.environ[name] = value
    try:
        yield
    finally:
        group.barrier()
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before


@ranks(2)
def without_nccl_calls_go_through_the_host(group: _core.Group, gpu: Gpu) -> None:
    x = Array(gpu, [1.0])
    with variable(group, "PYCOLLECTIVE_NCCL_LIB", "/nowhere/libnccl.so.2"):
        raises(pc.Unsupported, r"rank 0: .*/nowhere/libnccl\.so\.2", lambda: group._join_gpus(gpu.ordinal))
        for value in (2.0, 4.0):
            group.allreduce(x)
            assert x.host.tolist() == [value]
        raises(pc.Unsupported, r"rank 0: .*/nowhere/libnccl\.so\.2", lambda: group._join_gpus(gpu.ordinal))
    assert group.allreduce(np.array([1])).tolist() == [2]


@ranks(2)
def a_wait_through_the_host_has_a_timeout_of_its_own(group: _core.Group, gpu: Gpu) -> None:
    x = Array(gpu, [1 + group.rank], dtype=np.int16)
    group.allreduce(x)
    if group.rank == 0:
        work = group.allreduce_async(x)
        raises(pc.CollectiveTimeout, r"gave up after 0\.0.* goes on", lambda: work.wait(0.02))
        assert work.info()["state"] == "running"
        group.send(np.zeros(1), 1)
        assert work.wait(20) is x
    else:
        group.recv(np.zeros(1), 0)
        group.allreduce(x)
    gpu.drain(x.stream)
    assert x.host.tolist() == [6]


if __name__ == "__main__":
    run_checks()
