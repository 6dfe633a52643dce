"""What test_gpu_arrays.py checks of arrays that NCCL moves: gpu_checking.py."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import os
import signal
import sys
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

import fake_gpus
import numpy as np
from fake_cupy import fake_cupy
from fake_gpu_tensors import GpuTensor, gpu_tensor
from fake_gpus import Array, Gpu
from gpu_checking import DRIVERS, check, on_ranks, raises, ranks, run_checks
from waiting import eventually

import pycollective as pc
from pycollective import _core
from pycollective.runtime import availability


def _same_on_gpu_and_cpu(group: _core.Group, gpu: Gpu) -> None:
    n = group.size
    x = (np.arange(6 * n, dtype=np.float32) + 7 * group.rank).reshape(2 * n, 3)
    for name, arguments in {
        "allreduce": [{}, {"op": "prod"}],
        "broadcast": [{"root": 0}, {"root": n - 1}],
        "reduce": [{"root": n - 1}],
    }.items():
        for keywords in arguments:
            here, there = x.copy(), Array(gpu, x)
            getattr(group, name)(here, **keywords)
            assert getattr(group, name)(there, **keywords) is there
            gpu.drain(there.stream)
            is_result = name != "reduce" or group.rank == n - 1
            assert not is_result or np.array_equal(there.host, here), (name, keywords, there.host, here)
    for name, keywords, shape in [
        ("allreduce", {"op": "sum"}, x.shape),
        ("allgather", {}, (2 * n * n, 3)),
        ("reduce_scatter", {}, (2, 3)),
        ("alltoall", {}, x.shape),
    ]:
        here, there = np.zeros(shape, np.float32), Array(gpu, np.zeros(shape, np.float32))
        getattr(group, name)(x, out=here, **keywords)
        given = Array(gpu, x)
        assert getattr(group, name)(given, out=there, **keywords) is there
        gpu.drain(there.stream)
        assert np.array_equal(there.host, here), (name, there.host, here)
        assert np.array_equal(given.host, x), name


for _size in (1, 2, 3, 4):
    ranks(_size)(
        types.FunctionType(
            _same_on_gpu_and_cpu.__code__, globals(), f"collectives_have_the_results_of_the_cpu_on_{_size}"
        )
    )


@ranks(3)
def gather_and_scatter_have_the_results_of_the_cpu(group: _core.Group, gpu: Gpu) -> None:
    part = np.arange(4, dtype=np.int32) + 10 * group.rank
    at_root = group.rank == 1
    whole = Array(gpu, np.zeros(12, np.int32))
    result = group.gather(Array(gpu, part), root=1, out=whole if at_root else None)
    assert (result is whole) == at_root
    if at_root:
        gpu.drain(whole.stream)
        assert whole.host.tolist() == [r * 10 + i for r in range(3) for i in range(4)]
    back = Array(gpu, np.zeros(4, np.int32))
    group.scatter(whole if at_root else None, root=1, out=back)
    gpu.drain(back.stream)
    assert np.array_equal(back.host, part)


@ranks(2)
def a_call_is_behind_what_makes_its_array_and_the_host_waits_for_neither(
    group: _core.Group, gpu: Gpu
) -> None:
    stream = gpu.stream()
    x = Array(gpu, np.full(1000, np.nan), stream, np.float32)
    gpu.fill(stream, x, 1 + group.rank, held=True)  # does not complete before the stream is released
    assert group.allreduce(x) is x
    work = group.allreduce_async(x)
    assert work.wait() is x
    assert not work.done()
    raises(pc.CollectiveTimeout, r"gave up after 0\.0.* goes on", lambda: work.wait(0.001, host=True))
    assert gpu.queued(stream) > 0
    group.barrier()
    gpu.release(stream)
    assert work.wait(host=True) is x
    assert work.done()
    assert work.exception() is None
    gpu.drain(stream)
    assert (x.host == 6).all(), x.host


@ranks(2)
def a_work_is_waited_for_on_the_stream_of_the_moment(group: _core.Group, gpu: Gpu) -> None:
    made_on, used_on = gpu.stream(), gpu.stream()
    x = Array(gpu, [1.0, 2.0], made_on)
    gpu.hold(made_on)
    work = group.allreduce_async(x)
    x.stream = used_on
    work.wait()
    y = Array(gpu, [0.0, 0.0], used_on)
    gpu.copy(used_on, y, x)
    group.barrier()
    assert gpu.queued(used_on) > 0
    gpu.release(made_on)
    gpu.drain(used_on)
    assert y.host.tolist() == [2.0, 4.0]


@ranks(2)
def where_a_library_says_no_stream_the_host_waits(group: _core.Group, gpu: Gpu) -> None:
    x = Array(gpu, [1, 2], stream=None)
    group.allreduce(x)
    assert x.host.tolist() == [2, 4]
    work = group.allreduce_async(x)
    work.wait()
    assert work.done()
    assert x.host.tolist() == [4, 8]


@ranks(2)
def one_with_buffers_is_on_its_gpu_too(group: _core.Group, gpu: Gpu) -> None:
    class Readable(bytearray):  # as CuPy's: the host can read the memory on some machines
        here: Array | None = None

        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            if self.here is None:
                raise AttributeError("this one lies on the host")
            return self.here.__cuda_array_interface__

    x = Readable(8)
    x.here = Array(gpu, [1.0, 2.0], dtype=np.float32)
    group.allreduce(x)
    gpu.drain(x.here.stream)
    assert x.here.host.tolist() == [2.0, 4.0]
    assert bytes(x) == bytes(8)
    y = Readable(b"\x01\x02")
    group.allreduce(y)
    assert bytes(y) == b"\x02\x04"


@ranks(2)
def an_event_loop_goes_on_while_the_gpu_works(group: _core.Group, gpu: Gpu) -> None:
    stream = gpu.stream()
    x = Array(gpu, [1.0], stream)
    gpu.hold(stream)
    work = group.allreduce_async(x)
    seen = []

    async def program() -> None:
        async def other() -> None:
            seen.append(work.done())
            gpu.release(stream)

        task = asyncio.ensure_future(other())
        assert await work is x
        await task

    asyncio.run(program())
    assert seen == [False]
    assert x.host.tolist() == [2.0]
    assert work.info()["state"] == "done"
    assert "allreduce" in repr(work)


@ranks(2)
def an_array_lives_until_the_gpu_has_done_with_it(group: _core.Group, gpu: Gpu) -> None:
    stream = gpu.stream()
    gpu.hold(stream)
    other = group.barrier_async()
    for call in (group.allreduce, group.allreduce_async):
        x = Array(gpu, [1.0], stream)
        alive = weakref.ref(x)
        call(x)
        del x
        gc.collect()
        assert alive() is not None
    group.barrier()
    gpu.release(stream)
    assert eventually(
        lambda: other.done() and alive() is None
    )  # done() releases what other threads have left


@ranks(2)
def what_cannot_be_right_is_refused_before_anything_is_sent(group: _core.Group, gpu: Gpu) -> None:
    x = Array(gpu, np.arange(4.0))

    def changed(**attributes: Any) -> Array:
        array = Array(gpu, np.arange(4.0))
        for name, value in attributes.items():
            setattr(array, name, value)
        return array

    host = np.arange(4.0)
    refused: list[tuple[type[Exception], str, Callable[[], object]]] = [
        (pc.Unsupported, "cannot copy it there", lambda: group.allreduce(changed(strides=(16,)))),
        (pc.InvalidArgument, "read-only", lambda: group.allreduce(changed(read_only=True))),
        (pc.Unsupported, "version 2 .* which stream", lambda: group.allreduce(changed(version=2))),
        (pc.InvalidArgument, "byte order", lambda: group.allreduce(changed(dtype=np.dtype(">f8")))),
        (pc.Unsupported, "dtype", lambda: group.allreduce(changed(dtype=np.dtype("<M8[s]")))),
        (pc.InvalidArgument, "does not lie on GPU", lambda: group.allreduce(x, out=host)),
        (pc.InvalidArgument, "its memory is host", lambda: group.allreduce(changed(at=host.ctypes.data))),
        (
            pc.InvalidArgument,
            "different streams",
            lambda: group.allreduce(x, out=changed(stream=gpu.stream())),
        ),
        (pc.InvalidArgument, "shape", lambda: group.allreduce(x, out=Array(gpu, [1.0]))),
        (pc.InvalidArgument, "sent and what is received", lambda: group.sendrecv(x, 1 - group.rank, out=x)),
        (pc.InvalidArgument, "not all lie on one GPU", lambda: group.allreduce([x, np.ones(2)])),  # type: ignore[list-item]
        (pc.InvalidArgument, r"x\[0\] and x\[1\] share memory", lambda: group.allreduce([x, x])),  # type: ignore[list-item]
        (pc.Unsupported, "pass out=", lambda: group.allgather(x, counts=[4, 4])),
        (pc.Unsupported, "GPU", lambda: group.allreduce(x, reproducible="world")),
        (pc.Unsupported, "on a GPU like this Array: pass out=", lambda: group.allgather(x)),
    ]
    for kind, text, call in refused:
        raises(kind, text, call)
    assert x.host.tolist() == [0.0, 1.0, 2.0, 3.0]
    group.allreduce(x)
    gpu.drain(x.stream)
    assert x.host.tolist() == [0.0, 2.0, 4.0, 6.0]


@ranks(3)
def different_calls_are_a_mismatch_on_all_ranks(group: _core.Group, gpu: Gpu) -> None:
    x = Array(gpu, [1.0])
    op: Any = "prod" if group.rank == 1 else "sum"
    raises(pc.CollectiveMismatch, "prod", lambda: group.allreduce_async(x, op).wait(host=True))
    raises(pc.CollectiveMismatch, "prod", lambda: group.allreduce(x))
    group.resync()
    assert group.allreduce(np.array([1])).tolist() == [3]


@check
def an_unreported_failure_is_raised_by_the_end_of_the_world() -> None:
    def body(group: _core.Group, gpu: Gpu) -> None:
        op: Any = "prod" if group.rank == 1 else "sum"
        work = group.allreduce_async(Array(gpu, [1.0]), op)
        assert eventually(lambda: work.info()["state"] == "failed")
        group.resync()

    raises(pc.CollectiveMismatch, "prod", lambda: on_ranks(2, body))


@ranks(2)
def a_rank_that_dies_ends_the_calls_of_the_other(group: _core.Group, gpu: Gpu) -> None:
    x = Array(gpu, [1.0], gpu.stream())
    group.allreduce(x)
    gpu.drain(x.stream)
    if group.rank == 1:
        raise fake_gpus.Dies
    raises(pc.PeerFailure, "rank 1", lambda: group.allreduce_async(x).wait(host=True))
    gpu.drain(x.stream)  # its stream continues
    raises(pc.PeerFailure, "rank 1", lambda: group.allreduce(x))


@ranks(2)
def a_rank_that_does_not_come_is_named(group: _core.Group, gpu: Gpu) -> None:
    x = Array(gpu, [1.0])
    group.allreduce(x)
    if group.rank == 0:
        work = group.allreduce_async(x, timeout=0.3)
        error = work.exception()
        assert isinstance(error, pc.CollectiveTimeout), error
        assert "rank 1" in str(error), error
        assert work.info()["state"] == "failed"
        assert work.done()
        given_up.set()
    else:
        assert given_up.wait(60)
    group.resync()


given_up = threading.Event()


@ranks(2)
def an_array_of_the_cpu_and_one_of_a_gpu_are_a_mismatch(group: _core.Group, gpu: Gpu) -> None:
    x = Array(gpu, [1.0])
    raises(
        pc.CollectiveMismatch,
        "allgather",
        lambda: group.allreduce(x if group.rank == 0 else np.array([1.0])),  # type: ignore[arg-type]
    )
    group.resync()
    group.allreduce(x)
    gpu.drain(x.stream)
    assert x.host.tolist() == [2.0]


@ranks(4)
def groups_have_communicators_of_their_own(group: _core.Group, gpu: Gpu) -> None:
    half = group.split(group.rank % 2)
    assert half is not None
    x, y = Array(gpu, [1.0 + group.rank]), Array(gpu, [1.0])
    half.allreduce(x)
    group.allreduce(y)
    gpu.drain(1)
    assert x.host.tolist() == [[4.0], [6.0]][group.rank % 2]
    assert y.host.tolist() == [4.0]


@ranks(2)
def a_closed_group_that_has_joined_ends_with_the_world(group: _core.Group, gpu: Gpu) -> None:
    part = group.split(0)
    assert part is not None
    x = Array(gpu, [1.0])
    part.allreduce(x)
    part.close()
    gpu.drain(1)
    assert x.host.tolist() == [2.0]
    with contextlib.suppress(pc.NotInitialized):
        part.allreduce(x)
        raise AssertionError("a call on a closed group")
    pc.shutdown()  # raises if a communicator has not ended in order


@check
def python_code_that_the_first_call_runs_may_raise_or_end_the_world() -> None:
    real = availability.wheel_folders
    runtime = _core.Runtime(0, 1, key=bytes(32), job=bytes(16))
    group, x = runtime.world, Array(Gpu(DRIVERS[0], 0), [1.0])

    def raises_an_error() -> list[str]:
        raise ValueError("not today")

    def ends_the_world() -> list[str]:
        runtime.close()
        return []

    try:
        availability.wheel_folders = raises_an_error
        raises(ValueError, "not today", lambda: group.allreduce(x))
        availability.wheel_folders = ends_the_world
        raises(pc.NotInitialized, "belongs to a world that was shut down", lambda: group.allreduce(x))
    finally:
        availability.wheel_folders = real
        runtime.close()


@check
def a_forked_child_leaves_what_its_parent_has_on_gpus() -> None:
    gpu = Gpu(DRIVERS[0], 0)
    runtime = _core.Runtime(0, 1, key=bytes(32), job=bytes(16))
    group, x = runtime.world, Array(gpu, [1.0])
    group.allreduce(x)
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        with contextlib.suppress(BaseException):
            raises(pc.ForkedProcess, "was forked", lambda: group.allreduce(x))
            runtime.shutdown()
            runtime.close()
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    group.allreduce(x)
    runtime.shutdown()


@ranks(4)
def groups_cut_from_one_that_has_joined_get_communicators_from_its_own(group: _core.Group, gpu: Gpu) -> None:
    early = group.split(0)
    group.allreduce(Array(gpu, [1.0]))
    odd = group.split(1 if group.rank % 2 else None, -group.rank)
    mesh = pc.Mesh((2, 2), ("rows", "columns"), group=group)
    group.barrier()
    if group.rank == 0:
        cut = [line for line in gpu.driver.record() if "Split" in line and line.startswith("child")]
        lines = [line.split(" ", 2) for line in cut]
        assert sorted((words[0], words[2]) for words in lines) == [
            ("child(0/4)", "Split(-1) Split(0) Split(0)"),
            ("child(1/4)", "Split(3) Split(1) Split(0)"),
            ("child(2/4)", "Split(-1) Split(0) Split(2)"),
            ("child(3/4)", "Split(3) Split(1) Split(2)"),
        ]
    assert odd is None or odd.ranks == (3, 1)
    for each in (odd, mesh["rows"], mesh["columns"], early, group):
        if each is not None:
            x = Array(gpu, [1.0])
            each.allreduce(x)
            gpu.drain(1)
            assert x.host.tolist() == [each.size]


@ranks(2)
def arrays_without_elements_take_part(group: _core.Group, gpu: Gpu) -> None:
    empty = Array(gpu, np.zeros((0, 3)))
    assert group.allreduce(empty) is empty
    assert group.allreduce_async(empty).wait(host=True) is empty


@ranks(2)
def results_are_made_by_the_library_of_the_array(group: _core.Group, gpu: Gpu) -> None:
    sys.modules["cupy"] = fake_cupy
    fake_cupy.here.gpu = gpu
    x = fake_cupy.ndarray(gpu, [group.rank, group.rank], dtype=np.int64)
    result = group.allgather_async(x).wait(host=True)
    assert result is fake_cupy.here.made
    assert result.host.tolist() == [0, 0, 1, 1]
    assert group.reduce_scatter(x) is fake_cupy.here.made
    group.barrier()
    sys.modules.pop("cupy", None)


@ranks(3)
def lists_of_arrays_go_as_one(group: _core.Group, gpu: Gpu) -> None:
    stream = gpu.stream()
    values = [np.arange(5.0), np.arange(3, dtype=np.int32), np.full((2, 2), 0.5), np.zeros(0)]
    arrays = {str(i): Array(gpu, each + group.rank, stream) for i, each in enumerate(values)}
    gpu.hold(stream)
    pending: Any = arrays
    assert group.allreduce(pending) is arrays
    doubles: Any = [arrays["0"], arrays["2"]]
    work = group.broadcast_async(doubles, root=1)
    assert work.wait() is doubles
    group.barrier()
    assert not work.done()
    gpu.release(stream)
    work.wait(host=True)
    gpu.drain(stream)
    for i, each in enumerate(values):
        assert np.array_equal(arrays[str(i)].host, 3 * each + 3), i
    reduced: Any = [Array(gpu, [1.0 + group.rank], stream), Array(gpu, [2.0], stream)]
    group.reduce(reduced, root=2)
    gpu.drain(stream)
    assert [x.host.tolist() for x in reduced] == (
        [[6.0], [6.0]] if group.rank == 2 else [[1.0 + group.rank], [2.0]]
    )


@ranks(2)
def a_call_in_a_cuda_graph_runs_whenever_that_is_launched(group: _core.Group, gpu: Gpu) -> None:
    stream = gpu.stream()
    x = Array(gpu, [1.0], stream)
    # a capture lets no thread of its process make memory meanwhile, and ranks are threads here
    group.barrier()
    gpu.begin_capture(stream)
    raises(pc.InvalidArgument, "make one call .* before", lambda: group.allreduce(x))
    gpu.end_capture(stream)
    group.barrier()
    group.allreduce(x)
    gpu.drain(stream)
    group.barrier()
    gpu.begin_capture(stream)
    for _ in range(2):
        group.allreduce(x)
    gpu.end_capture(stream)
    for value in (1.0, 5.0):
        x.host[...] = value + group.rank
        group.barrier()
        gpu.replay(stream)
        gpu.drain(stream)
        assert x.host.tolist() == [2 * (2 * value + 1)]
        group.barrier()


@ranks(2)
def the_world_ends_when_its_calls_have_ended(group: _core.Group, gpu: Gpu) -> None:
    stream = gpu.stream()
    x = Array(gpu, [1.0], stream)
    gpu.fill(stream, x, 3.0)
    KEPT.append(group.allreduce_async(x))  # no thread waits for it, and it outlives the world


KEPT: list[Any] = []


@check
def a_work_outlives_its_world() -> None:
    for work in KEPT:
        assert work.done()
        assert work.info()["state"] == "done"
        assert work.wait(host=True).host.tolist() == [6.0]


@ranks(2)
def a_tensor_of_torch_goes_behind_its_current_stream(group: _core.Group, gpu: Gpu) -> None:
    stream = GpuTensor.streams[gpu.ordinal] = gpu.stream()
    x = gpu_tensor(gpu, np.full(5, 1.0 + group.rank))
    version = x._version
    gpu.hold(stream)
    assert group.allreduce(x) is x
    assert x._version > version
    assert gpu.queued(stream) > 0
    other = GpuTensor.streams[gpu.ordinal] = gpu.stream()
    work = group.broadcast_async(x, root=1)
    work.wait()
    group.barrier()
    gpu.release(stream)
    gpu.drain(stream)
    gpu.drain(other)
    work.wait(host=True)
    assert x.tolist() == [3.0] * 5


@ranks(2)
def tensors_that_autograd_needs_are_refused_there_too(group: _core.Group, gpu: Gpu) -> None:
    GpuTensor.streams.pop(gpu.ordinal, None)
    leaf = gpu_tensor(gpu, [1.0])
    leaf.requires_grad_()
    result = (leaf * 2).as_subclass(GpuTensor)
    result.gpu = gpu.ordinal
    raises(pc.InvalidArgument, "requires grad", lambda: group.allreduce(result))
    group.allreduce(leaf)
    gpu.drain(None)
    assert leaf.tolist() == [2.0]


@ranks(2)
def lists_of_tensors_go_as_one(group: _core.Group, gpu: Gpu) -> None:
    GpuTensor.streams.pop(gpu.ordinal, None)
    tensors = [gpu_tensor(gpu, [1.0, 2.0]), gpu_tensor(gpu, [[3.0]])]
    versions = [x._version for x in tensors]
    assert group.allreduce(tensors) is tensors
    gpu.drain(None)
    assert [x.tolist() for x in tensors] == [[2.0, 4.0], [[6.0]]]
    assert all(x._version > version for x, version in zip(tensors, versions, strict=True))


def _stuck_in_nccl(body: Callable[[_core.Group, Array], None], when_stuck: Callable[[], None]) -> None:
    """Run `body` in the main thread of a world of one, where NCCL blocks a call.

    `when_stuck` runs in another thread meanwhile.
    """
    driver = DRIVERS[0]
    runtime = _core.Runtime(0, 1, key=bytes(32), job=os.urandom(16), timeout_s=30)
    x = Array(Gpu(driver, 0), [1.0])
    runtime.world.allreduce(x)
    driver.nccl.fake_nccl_hang_calls(1)

    def waits() -> None:
        if eventually(lambda: driver.nccl.fake_nccl_blocked() > 0):
            when_stuck()

    other = threading.Thread(target=waits, daemon=True)
    other.start()
    try:
        body(runtime.world, x)
    finally:
        driver.nccl.fake_nccl_hang_calls(0)
        other.join(30)
        runtime.close()


def _press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@check
def ctrl_c_ends_a_call_that_is_stuck_inside_nccl() -> None:
    def body(group: _core.Group, x: Array) -> None:
        with contextlib.suppress(KeyboardInterrupt):
            group.allreduce(x)
            raise AssertionError("the call goes on")
        raises(pc.CollectiveError, "interrupted", lambda: group.allreduce(x))

    _stuck_in_nccl(body, _press_ctrl_c)


@check
def a_handler_of_the_program_decides_what_ctrl_c_means_for_a_call_that_is_stuck() -> None:
    interrupts = []
    usual = signal.signal(signal.SIGINT, lambda *_: interrupts.append(1))
    try:
        stuck = functools.partial(raises, pc.CollectiveTimeout, "still queueing it on the GPU")
        _stuck_in_nccl(lambda group, x: stuck(lambda: group.allreduce(x, timeout=0.5)), _press_ctrl_c)
    finally:
        signal.signal(signal.SIGINT, usual)
    assert interrupts


if __name__ == "__main__":
    run_checks()
