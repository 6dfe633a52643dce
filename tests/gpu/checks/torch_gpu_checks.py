"""What test_torch_gpu.py checks, in its own process: the torch.distributed backend on FAKE GPUs.

Ranks are threads, each with a process group and a GPU (gpu_checking.py).
"""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import fake_torch_cuda as fake
import torch
import torch.distributed as dist
from fake_gpus import Gpu
from fake_torch_cuda import CudaTensor, cuda_tensor
from gpu_checking import raises, ranks, run_checks
from torch.distributed import ReduceOp
from waiting import eventually

import pycollective as pc
from pycollective import _core
from pycollective.torch import ddp_comm_hook
from pycollective.torch.backend import process_group
from pycollective.torch.backend.joining import Joined

SOON = timedelta(milliseconds=50)
LATE = timedelta(seconds=20)
Group = process_group.ProcessGroupPycollective


def check(body: Callable[[Group, Gpu], None]) -> Callable[[Group, Gpu], None]:
    """Makes the function a check of 2 ranks, and one of 3."""

    def on_group(group: _core.Group, gpu: Gpu) -> None:
        body(backend(group), gpu)

    for size in (2, 3):
        on_group.__name__ = f"{body.__name__}_on_{size}"
        ranks(size)(on_group)
    return body


def backend(group: _core.Group) -> Group:
    """Returns the process group of this thread."""
    options = SimpleNamespace(
        group_rank=group.rank,
        group_size=group.size,
        timeout=LATE,
        group_id="world",
        store=None,
        global_ranks_in_group=[],
    )
    with joining:
        process_group.join = lambda *_, **__: Joined(group, lambda: None, lambda: None)  # type: ignore[assignment]
        return Group(options)


joining = threading.Lock()


@contextlib.contextmanager
def on_stream_of_its_own(gpu: Gpu) -> Iterator[int]:
    stream = fake.Stream(torch.device("cuda", gpu.ordinal))
    with fake.stream(stream):
        yield stream.handle
        gpu.drain(stream.handle)


@contextlib.contextmanager
def held(gpu: Gpu, group: Group) -> Iterator[None]:
    """Delays what is queued on the current stream until every rank has queued its part."""
    handle = fake.current_stream(torch.device("cuda", gpu.ordinal)).handle
    gpu.hold(handle)
    try:
        yield
        assert gpu.queued(handle) > 0
        group.group.barrier()
    finally:
        gpu.release(handle)


def values(gpu: Gpu, x: torch.Tensor) -> Any:
    """Returns the values after the current stream is done."""
    gpu.drain(fake.current_stream(torch.device("cuda", gpu.ordinal)).handle)
    return x.tolist()


def own(rank: int) -> torch.Tensor:
    return torch.arange(6.0).reshape(2, 3) + 10 * rank


Tensors = Any
Make = Callable[[Any], torch.Tensor]  # from values, on the CPU or on the GPU


def calls(group: Group, make: Make, background: bool) -> Iterator[tuple[str, list[torch.Tensor], Any]]:
    """Yields the name of a call, the tensors with its results, and its Work, one call at a time."""
    rank, size = group.rank(), group.size()
    how: Any = {"group": group, "async_op": background}
    mine = make(own(rank))
    for op in (ReduceOp.SUM, ReduceOp.AVG, ReduceOp.PRODUCT, ReduceOp.MIN):
        x = make(own(rank))
        yield f"all_reduce {op}", [x], dist.all_reduce(x, op, **how)
    x = make(own(rank))
    yield "broadcast", [x], dist.broadcast(x, group_src=size - 1, **how)
    x = make(own(rank))
    yield "reduce", [x] if rank == 1 else [], dist.reduce(x, group_dst=1, **how)
    parts = [make(torch.zeros(2, 3)) for _ in range(size)]
    yield "all_gather", parts, dist.all_gather(parts, mine, **how)
    whole = make(torch.zeros(2 * size, 3))
    yield "all_gather into one", [whole], dist.all_gather(list(whole.chunk(size)), mine, **how)
    whole = make(torch.zeros(2 * size, 3))
    yield "all_gather_into_tensor", [whole], dist.all_gather_into_tensor(whole, mine, **how)
    uneven = [make(torch.zeros(each + 1)) for each in range(size)]
    row = make(torch.full((rank + 1,), float(rank)))
    yield "all_gather, uneven", uneven, dist.all_gather(uneven, row, **how)
    at_root = [make(torch.zeros(2, 3)) for _ in range(size)] if rank == 1 else None
    yield "gather", at_root or [], dist.gather(mine, at_root, group_dst=1, **how)
    x = make(torch.zeros(2, 3))
    given = [make(own(each) + 1) for each in range(size)] if rank == 0 else None
    yield "scatter", [x], dist.scatter(x, given, group_src=0, **how)
    x = make(torch.zeros(2, 3))
    yield "reduce_scatter", [x], dist.reduce_scatter(x, [make(own(each)) for each in range(size)], **how)
    x, y = make(torch.zeros(2, 3)), make(torch.cat([own(rank + each) for each in range(size)]))
    yield "reduce_scatter_tensor", [x], dist.reduce_scatter_tensor(x, y, **how)
    x, y = make(torch.zeros(size)), make(torch.arange(float(size)) + 10 * rank)
    yield "all_to_all_single", [x], dist.all_to_all_single(x, y, **how)
    x, y = make(torch.zeros(size * (rank + 1), 2)), make(torch.full((sum(range(size + 1)), 2), float(rank)))
    splits = [rank + 1] * size, [each + 1 for each in range(size)]
    yield "all_to_all_single, uneven", [x], dist.all_to_all_single(x, y, *splits, **how)
    lists = [make(torch.zeros(rank + 1)) for _ in range(size)]
    given = [make(torch.full((each + 1,), float(rank))) for each in range(size)]
    yield "all_to_all", lists, dist.all_to_all(lists, given, **how)


@check
def calls_have_the_results_of_the_cpu_in_one_process_group(group: Group, gpu: Gpu) -> None:
    for background in (False, True):
        here = calls(group, lambda x: x.clone(), background)
        there = calls(group, lambda x: cuda_tensor(gpu, x), background)
        for (name, wanted, first), (_, found, second) in zip(here, there, strict=True):
            assert (first is None and second is None) is not background, name
            for work in (first, second) if background else ():
                assert work.wait(), name
            for x, y in zip(found, wanted, strict=True):
                torch.testing.assert_close(torch.tensor(values(gpu, x)), y, msg=f"{name}, {background}")


@check
def a_blocking_call_is_in_line_with_what_comes_before_and_after(group: Group, gpu: Gpu) -> None:
    total = 1.0 + sum(range(group.size()))
    for make in (lambda: torch.zeros(4, 3), lambda: torch.zeros(3, 4).t()):  # in one block or not
        with on_stream_of_its_own(gpu), held(gpu, group):
            x = cuda_tensor(gpu, torch.zeros(12)).as_strided(make().shape, make().stride())
            x.fill_(group.rank())
            dist.all_reduce(x, group=group)
            x.add_(1)
            y = x.clone()
        assert values(gpu, y) == [[total] * 3] * 4


@check
def copies_of_lists_are_in_line_too(group: Group, gpu: Gpu) -> None:
    size = group.size()
    parts = [cuda_tensor(gpu, torch.zeros(2)) for _ in range(size)]
    with on_stream_of_its_own(gpu), held(gpu, group):
        x = cuda_tensor(gpu, torch.zeros(2))
        x.fill_(group.rank())
        dist.all_gather(parts, x, group=group)
        sums = [part.add(1) for part in parts]
        given = [part.mul(2) for part in parts]
        dist.reduce_scatter(x, given, group=group)
        y = x.clone()
    assert [values(gpu, each) for each in sums] == [[1.0 + rank] * 2 for rank in range(size)]
    assert values(gpu, y) == [2.0 * size * group.rank()] * 2


@check
def wait_puts_the_stream_of_the_moment_behind_the_call_and_returns(group: Group, gpu: Gpu) -> None:
    total = [float(sum(range(group.size())))] * 3
    for across in (False, True):
        memory = cuda_tensor(gpu, torch.zeros(9)).as_strided((3, 3), (3, 1))
        x = memory[:, 0] if across else memory[0]
        with on_stream_of_its_own(gpu) as made_on, held(gpu, group):
            x.fill_(group.rank())
            work = dist.all_reduce(x, group=group, async_op=True)
            used = []
            for _ in range(2):  # a second stream that waits for the same work
                with fake.stream(fake.Stream(torch.device("cuda", gpu.ordinal))):
                    assert work.wait()
                    used.append((fake.current_stream(x.device).handle, x.clone()))
            assert not work.is_completed()
            assert not work.is_success()
            raises(pc.CollectiveTimeout, "gave up after 0.05", partial(work.wait, SOON))
            assert gpu.queued(made_on) > 0
        assert work.wait(LATE)
        for handle, y in used:
            gpu.drain(handle)
            assert y.tolist() == total, across
        assert eventually(work.is_completed)
        assert work.is_success()
        assert work.exception() is None
        work.synchronize()
        assert values(gpu, work.result()[0]) == total


@check
def a_work_that_says_it_is_completed_has_put_its_results_in_place(group: Group, gpu: Gpu) -> None:
    size = group.size()
    parts = [cuda_tensor(gpu, torch.zeros(2)) for _ in range(size)]
    with on_stream_of_its_own(gpu):
        work = dist.all_gather(
            parts, cuda_tensor(gpu, torch.full((2,), group.rank() + 1.0)), group=group, async_op=True
        )
        assert eventually(work.is_completed)
        assert [x.tolist() for x in parts] == [[rank + 1.0] * 2 for rank in range(size)]


@check
def a_future_is_there_at_once_and_orders_streams(group: Group, gpu: Gpu) -> None:
    size = group.size()
    total = [float(sum(range(size)))] * 2
    with on_stream_of_its_own(gpu), held(gpu, group):
        x, parts = cuda_tensor(gpu, [0.0, 0.0]), [cuda_tensor(gpu, [0.0, 0.0]) for _ in range(size)]
        x.fill_(group.rank())
        mine = x.add(1)
        work = dist.all_reduce(x, group=group, async_op=True)
        with fake.stream(fake.Stream(x.device)):
            future = work.get_future()
            assert gpu.queued(fake.current_stream(x.device).handle) == 0  # it waits for nothing
        assert future.done()
        assert work.get_future() is future
        callback_streams = []

        def doubled(done: Any) -> Any:
            callback_streams.append(fake.current_stream(x.device).handle)
            return done.value()[0].mul(2)

        then = future.then(doubled)
        gathered = dist.all_gather(parts, mine, group=group, async_op=True).get_future()
        assert gathered.done()
        used = []
        with fake.stream(fake.Stream(torch.device("cuda", gpu.ordinal))):
            used += [future.wait()[0].clone(), then.wait().clone(), *(y.clone() for y in gathered.wait())]
            consumer = fake.current_stream(x.device).handle
        assert callback_streams[0] not in (consumer, fake.current_stream(x.device).handle)
        assert gpu.queued(consumer) > 0
    gpu.drain(consumer)
    assert used[0].tolist() == total
    assert used[1].tolist() == [2 * total[0]] * 2
    assert [y.tolist() for y in used[2:]] == [[1.0 + rank] * 2 for rank in range(size)]
    kept = {memory for memory, _ in fake.recorded}
    assert all(part.data_ptr() in kept for part in parts)  # they were written on a stream of ours


@check
def a_future_of_a_call_through_the_host_comes_when_that_has_ended(group: Group, gpu: Gpu) -> None:
    with on_stream_of_its_own(gpu):
        joins = cuda_tensor(gpu, [1.0])
        dist.all_reduce(joins, group=group)
        x = cuda_tensor(gpu, torch.full((2,), group.rank() + 3.0))
        if group.rank():
            group.recv([torch.zeros(1)], 0).wait()  # when rank 0 has checked it
        work = dist.all_reduce(x, ReduceOp.MIN, group=group, async_op=True)  # which NCCL does not have
        future = work.get_future()
        if group.rank() == 0:
            assert not future.done()
        then = future.then(lambda done: done.value()[0].mul(2))
        if group.rank() == 0:
            for peer in range(1, group.size()):
                group.send([torch.zeros(1)], peer).wait()
        y = then.wait().clone()
        assert values(gpu, y) == [6.0] * 2
        assert future.done()


@check
def ddp_comm_hook_is_in_the_order_of_streams(group: Group, gpu: Gpu) -> None:
    x = cuda_tensor(gpu, [0.0, 0.0])
    bucket: Any = SimpleNamespace(buffer=lambda: x)
    with on_stream_of_its_own(gpu), held(gpu, group):
        x.fill_(2 * group.rank())
        future = ddp_comm_hook(group, bucket)
        assert future.done()
        y = future.wait().clone()
    assert values(gpu, y) == [group.size() - 1.0] * 2


@check
def coalesced_calls_end_with_the_work_of_their_end(group: Group, gpu: Gpu) -> None:
    size, rank = group.size(), group.rank()
    total = [float(sum(range(size)))] * 2
    with on_stream_of_its_own(gpu), held(gpu, group):
        tensors = [cuda_tensor(gpu, [0.0, 0.0]) for _ in range(2)]
        numbers = cuda_tensor(gpu, [0, 0])
        for x in (*tensors, numbers):
            x.fill_(rank)
        group.allreduce_coalesced([tensors[0], numbers]).wait()
        group._start_coalescing()
        dist.all_reduce(tensors[1], group=group, async_op=True)
        whole = cuda_tensor(gpu, torch.zeros(2 * size))
        dist.all_gather_into_tensor(whole, tensors[0], group=group, async_op=True)
        work = group._end_coalescing()
        future = work.get_future()
        assert future.done()
        with fake.stream(fake.Stream(whole.device)):
            used = [x.clone() for x in future.wait()]
            consumer = fake.current_stream(x.device).handle
        assert work.wait()
        y = tensors[1].clone()
    gpu.drain(consumer)
    assert [x.tolist() for x in used] == [total, total * size]
    assert values(gpu, y) == values(gpu, numbers) == total
    outs = [cuda_tensor(gpu, torch.zeros(size)) for _ in range(2)]
    ins = [cuda_tensor(gpu, [rank + 1.0]), cuda_tensor(gpu, [rank + 2.0])]
    group.all_gather_single_coalesced(outs, ins).wait()
    assert [values(gpu, x)[0] for x in outs] == [1.0, 2.0]
    group._start_coalescing()  # one of them through the host
    dist.all_reduce(ins[0], ReduceOp.MAX, group=group, async_op=True)
    dist.all_reduce(ins[1], group=group, async_op=True)
    work = group._end_coalescing()
    work.get_future().then(lambda _: None).wait()
    assert work.wait()
    assert values(gpu, ins[0]) == [float(size)]
    assert values(gpu, ins[1]) == [2.0 * size + sum(range(size))]


@check
def lists_of_several_devices_are_refused_before_anything_is_sent(group: Group, gpu: Gpu) -> None:
    size = group.size()

    def there(n: int = 2) -> CudaTensor:
        return cuda_tensor(gpu, torch.ones(n))

    def here(n: int = 2) -> torch.Tensor:
        return torch.ones(n)

    mixed: Tensors = [there(), here(), there()][:size]
    refused: list[Callable[[], object]] = [
        lambda: group.allreduce_coalesced([there(), here()]),
        lambda: dist.all_gather(mixed, there(), group=group),
        lambda: dist.reduce_scatter(there(), mixed, group=group),
        lambda: dist.all_to_all(mixed, [there() for _ in range(size)], group=group),
        lambda: dist.all_to_all([there() for _ in range(size)], mixed, group=group),
        lambda: group.all_gather_single_coalesced([there(2 * size), here(2 * size)], [there(), here()]),
        lambda: group.reduce_scatter_single_coalesced([there(), here()], [there(2 * size), here(2 * size)]),
        lambda: group.allgather_coalesced([[there(), here()] for _ in range(size)], [there(), here()]),
        lambda: dist.all_gather_into_tensor(here(2 * size), there(), group=group),
        lambda: dist.all_gather([here() for _ in range(size)], there(), group=group),
        lambda: dist.reduce_scatter_tensor(there(), here(2 * size), group=group),
        lambda: dist.all_to_all_single(here(size), there(size), group=group),
    ]
    for call in refused:
        raises(pc.InvalidArgument, "lie", call)
    raises(pc.InvalidArgument, "one device", lambda: group.allreduce([there(), here()]))
    x = there()
    dist.all_reduce(x, group=group)
    assert values(gpu, x) == [float(size)] * 2


@check
def a_barrier_with_device_ids_waits_for_their_streams(group: Group, gpu: Gpu) -> None:
    def barrier(*, of_gpus: bool, background: bool) -> Any:
        opts = dist.BarrierOptions()
        opts.asyncOp = background
        if of_gpus:
            opts.device_ids = [gpu.ordinal]
        return group.barrier(opts)

    for background in (False, True):
        with on_stream_of_its_own(gpu) as stream:
            x = cuda_tensor(gpu, [1.0])
            barrier(of_gpus=True, background=False)  # connects the ranks
            if group.rank() == 1:
                gpu.hold(stream)
            x.mul_(2)
            barrier(of_gpus=False, background=background).wait()  # only those of the program
            group.group.barrier()
            if group.rank() == 1:
                assert gpu.queued(stream) > 0
                timer = threading.Timer(0.1, lambda: (fake.gpu_of(gpu.ordinal), gpu.release(stream)))
                timer.start()
                barrier(of_gpus=True, background=background).wait()
                timer.join()
            else:
                work = barrier(of_gpus=True, background=background)
                assert work.wait()
            assert x.tolist() == [2.0]
            if background and group.rank() == 0:
                assert work.is_completed()
            group.group.barrier()


@check
def messages_go_between_ranks(group: Group, gpu: Gpu) -> None:
    rank, size = group.rank(), group.size()
    right, left = (rank + 1) % size, (rank - 1) % size
    with on_stream_of_its_own(gpu):
        x, y = cuda_tensor(gpu, torch.zeros(2, 3)), cuda_tensor(gpu, torch.zeros(3, 2)).t()
        for into in (x, y):
            mine = cuda_tensor(gpu, own(rank))
            mine.add_(1)
            works = group.send([mine], right), group.recv([into], left)
            for work in works:
                assert work.wait()
            assert values(gpu, into.clone()) == (own(left) + 1).tolist()
            assert eventually(works[1].is_completed)
            assert works[1].source_rank() == left
        if rank == 0:  # a rank's tensor may be on the CPU
            group.send([torch.ones(2)], 1, 5).wait()
        elif rank == 1:
            z = cuda_tensor(gpu, [0.0, 0.0])
            future = group.recv([z], 0, 5).get_future()
            assert values(gpu, future.wait()[0].clone()) == [1.0, 1.0]
        large = cuda_tensor(gpu, torch.full((40_000,), float(rank)))  # by NCCL
        into = cuda_tensor(gpu, torch.zeros(40_000))
        for work in (group.send([large], right, 6), group.recv([into], left, 6)):
            assert work.wait()
        assert set(values(gpu, into.clone())) == {float(left)}


@check
def a_receive_from_any_source_is_behind_what_its_tensor_was_used_for(group: Group, gpu: Gpu) -> None:
    rank, size = group.rank(), group.size()
    right, left = (rank + 1) % size, (rank - 1) % size
    with on_stream_of_its_own(gpu):
        for background in (False, True):
            x = cuda_tensor(gpu, torch.zeros(2, 3))
            stream = fake.current_stream(x.device).handle
            if background:
                gpu.hold(stream)
            x.fill_(7)
            before = x.clone()
            work = group.recv_anysource([x])
            with fake.stream(fake.Stream(x.device)):
                group.send([cuda_tensor(gpu, own(rank))], right)
            if background:
                assert not work.is_completed()
                gpu.release(stream)
                found = work.get_future().wait()[0].clone()
            else:
                assert work.wait()
                found = x.clone()
            assert values(gpu, found) == own(left).tolist()
            assert before.tolist() == [[7.0] * 3] * 2
            assert work.source_rank() == left
            assert eventually(work.is_completed)


@check
def ranks_that_disagree_are_informed(group: Group, gpu: Gpu) -> None:
    x = cuda_tensor(gpu, [1.0])
    op = ReduceOp.MAX if group.rank() == 1 else ReduceOp.MIN  # through the host: the group stays usable
    for wait in (lambda w: w.wait(), lambda w: w.get_future().wait(), lambda w: w.wait(LATE)):
        work = dist.all_reduce(x, op, group=group, async_op=True)
        raises(pc.CollectiveMismatch, "max", lambda wait=wait, work=work: wait(work))  # type: ignore[misc]
        assert work.is_completed()
        assert not work.is_success()
        assert isinstance(work.exception(), pc.CollectiveMismatch)
    dist.all_reduce(x, group=group)
    assert values(gpu, x) == [float(group.size())]
    op = ReduceOp.PRODUCT if group.rank() == 1 else ReduceOp.SUM  # by NCCL: the group ends for arrays of GPUs
    # The comparison may have failed before the call returns; then the call itself raises.
    begun_and_waited = lambda: dist.all_reduce(x, op, group=group, async_op=True).wait(LATE)  # noqa: E731
    raises(pc.CollectiveMismatch, "prod", begun_and_waited)
    raises(pc.CollectiveMismatch, "prod", lambda: dist.all_reduce(x, op, group=group))
    group.group.resync()
    z = torch.ones(1)
    dist.all_reduce(z, group=group)
    assert z.item() == group.size()


@check
def memory_lives_until_the_gpu_has_done_with_it(group: Group, gpu: Gpu) -> None:
    other = group.group.barrier_async()
    with on_stream_of_its_own(gpu), held(gpu, group):
        x = cuda_tensor(gpu, torch.zeros(4))
        storage = x.untyped_storage()
        gone = weakref.ref(storage)
        work: Any = dist.all_reduce(x, group=group, async_op=True)
        work.wait()
        del x, storage, work
        gc.collect()
        assert gone() is not None
    assert eventually(lambda: other.done() and gone() is None)  # done() releases what other threads have left
    group.group.barrier()


@check
def the_backend_of_both_devices(group: Group, gpu: Gpu) -> None:
    for device in ("cpu", "cuda"):
        assert group._get_backend(torch.device(device)) is group
    assert dist.Backend.backend_capability["pycollective"] == ["cpu", "cuda"]
    assert dist.Backend.default_device_backend_map["cuda"] == "nccl"


@check
def a_reducers_buckets_are_on_the_gpu_in_line_with_its_streams(group: Group, gpu: Gpu) -> None:
    ours = group.group
    shapes = {"a": (2, 3), "b": (4,), "c": ()}
    parameters = {name: cuda_tensor(gpu, torch.zeros(shape)) for name, shape in shapes.items()}
    by_nccl: dict[str, Any] = {"op": "avg"}
    through_the_host: dict[str, Any] = {"op": "max", "compression": "f16"}
    for how in (by_nccl, through_the_host):
        reducer = pc.GradientReducer(parameters, group=ours, **how)
        assert reducer.view("a").is_cuda
        with on_stream_of_its_own(gpu):
            for step in range(3):
                gradients = {name: cuda_tensor(gpu, torch.zeros(shape)) for name, shape in shapes.items()}
                queues = step == 2 and how is by_nccl  # after the ranks have connected
                with held(gpu, group) if queues else contextlib.nullcontext():
                    for name in ("c", "a"):
                        gradients[name].fill_(step + ours.rank)
                        assert reducer.ready(name, gradients[name]) is reducer.view(name)
                    reduced = reducer.finish()
                all_of_it = step + (ours.size - 1) / (2 if how is by_nccl else 1)
                assert values(gpu, reduced["a"]) == [[all_of_it] * 3] * 2
                assert values(gpu, reduced["b"]) == [0] * 4
                assert values(gpu, reduced["c"]) == all_of_it
                reduced["b"].fill_(7)  # what a step leaves there does not appear in the next one
        views = [reducer.view(name) for name in shapes]
        before = [view._version for view in views]
        views[0].zero_()
        gpu.drain(None)
        assert [view._version for view in views[1:]] == before[1:]
    raises(
        pc.InvalidArgument,
        '"b" does not lie where "a" does',
        lambda: pc.GradientReducer({"a": parameters["a"], "b": torch.zeros(2)}, group=ours),
    )
    ours.barrier()


if __name__ == "__main__":
    fake.play()
    torch.set_num_threads(1)
    run_checks()
