"""What every rank does in test_torch_backend: checks on all ranks of a torch.distributed world."""

from __future__ import annotations

import gc
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch_alias_checks  # noqa: F401  its checks are among CHECKS
import torch_dispatcher_checks  # noqa: F401  its checks are, too
import torch_message_checks  # noqa: F401  its checks are, too
import torch_profiler_checks  # noqa: F401  its checks are, too
from torch.distributed import ReduceOp
from torch.distributed.device_mesh import init_device_mesh
from torch_backend_checking import CHECKS, check, group_that_waits, here, own, total, uneven
from waiting import eventually

import pycollective as pc


def some_checks(names: Sequence[str]) -> dict[str, str]:
    """Returns the tracebacks of those that failed here."""
    torch.set_num_threads(1)
    dist.init_process_group("pycollective", timeout=timedelta(seconds=20))
    failed = {}
    for name in names:
        try:
            CHECKS[name]()
        except (Exception, pytest.fail.Exception):
            failed[name] = traceback.format_exc()
    dist.destroy_process_group()
    return failed


INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64)
UNSIGNED = (torch.uint8, torch.uint16, torch.uint32, torch.uint64)


@check
def an_average_of_integers_is_their_sum_divided_towards_zero() -> None:
    """NCCL does so. Lightning averages the int64 size of a batch."""
    rank, size = here()
    for dtype in INTEGERS + UNSIGNED:
        sign = 1 if dtype in UNSIGNED else -1
        values = torch.tensor([[3 + rank, 7], [sign * (3 + rank), 0]]).to(dtype)
        small = sum(3 + each for each in range(size)) // size
        wanted = torch.tensor([[small, 7], [sign * small, 0]]).to(dtype)
        for is_async in (False, True):
            x = values.clone()
            work = dist.all_reduce(x, ReduceOp.AVG, async_op=is_async)
            if is_async:
                work.wait()
            assert x.tolist() == wanted.tolist(), (dtype, is_async, x)
        x = values.clone()
        dist.reduce(x, size - 1, ReduceOp.AVG)
        assert x.tolist() == (wanted if rank == size - 1 else values).tolist(), dtype
        part = torch.zeros(2, 2, dtype=dtype)
        dist.reduce_scatter(part, [values.clone() for _ in range(size)], ReduceOp.AVG)
        assert part.tolist() == wanted.tolist(), dtype
        part = torch.zeros(2, 2, dtype=dtype)
        dist.reduce_scatter_tensor(part, values.repeat(size, 1), ReduceOp.AVG)
        assert part.tolist() == wanted.tolist(), dtype
    largest = torch.full((3,), (2**64 - 1) // size, dtype=torch.uint64)
    dist.all_reduce(largest, ReduceOp.AVG)
    assert largest.tolist() == [(2**64 - 1) // size] * 3
    columns, row = torch.arange(6).reshape(2, 3).t() - 3, torch.tensor([rank])
    dist.all_reduce_coalesced([columns, row], ReduceOp.AVG)
    assert columns.tolist() == (torch.arange(6).reshape(2, 3).t() - 3).tolist()
    assert row.item() == sum(range(size)) // size
    with pytest.raises(pc.Unsupported, match="avg"):
        dist.all_reduce(torch.ones(3, dtype=torch.bool), ReduceOp.AVG)


@check
def all_reduce_takes_every_operation() -> None:
    rank, size = here()
    all_ranks = torch.stack([own(each) for each in range(size)])
    for op, wanted in (
        (ReduceOp.SUM, all_ranks.sum(0)),
        (ReduceOp.AVG, all_ranks.sum(0) / size),
        (ReduceOp.PRODUCT, all_ranks.prod(0)),
        (ReduceOp.MIN, all_ranks.amin(0)),
        (ReduceOp.MAX, all_ranks.amax(0)),
    ):
        x = own()
        dist.all_reduce(x, op)
        assert torch.equal(x, wanted), op
    for op, wanted in ((ReduceOp.BAND, 0), (ReduceOp.BOR, 2**size - 1), (ReduceOp.BXOR, 2**size - 1)):
        bits = torch.tensor([1 << rank])
        dist.all_reduce(bits, op)
        assert bits.item() == wanted, op
    x = own()
    dist.all_reduce(x, dist._make_nccl_premul_sum(0.5))
    assert torch.equal(x, total() / 2)


@check
def all_reduce_takes_tensors_of_every_kind() -> None:
    _, size = here()
    for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int64, torch.uint8):
        x = torch.ones(5, dtype=dtype)
        dist.all_reduce(x)
        assert x.tolist() == [size] * 5, dtype
    truth = torch.tensor([dist.get_rank() == 0, False])
    dist.all_reduce(truth)
    assert truth.tolist() == [True, False]
    z = torch.full((3,), 1 + 2j)
    dist.all_reduce(z)
    assert z.tolist() == [size * (1 + 2j)] * 3
    for x in (own().t(), own()[:, 1], own().reshape(1, 2, 3, 1).to(memory_format=torch.channels_last)):
        for begin in (dist.all_reduce, lambda y: dist.all_reduce(y, async_op=True).wait()):
            y = x.detach().clone(memory_format=torch.preserve_format)
            wanted = sum(x - own()[0, 0] + own(each)[0, 0] for each in range(size))
            begin(y)
            assert torch.equal(y, wanted)
    empty, number = torch.empty(0), torch.tensor(1.0)
    dist.all_reduce(empty)
    dist.all_reduce(number)
    assert number.item() == size


@check
def tensors_of_autograd_are_written_as_with_other_backends() -> None:
    _, size = here()
    weight = torch.ones(3, requires_grad=True)
    dist.all_reduce(weight)
    loss = (weight * 2).sum()
    dist.all_reduce(loss)
    dist.broadcast(loss, 0)
    assert loss.item() == 6 * size * size


@check
def works_wait_report_and_have_futures() -> None:
    x = own()
    work = dist.all_reduce(x, async_op=True)
    assert work.wait()
    assert work.is_completed()
    assert work.is_success()
    assert work.exception() is None
    assert torch.equal(work.result()[0], total())
    x = own()
    future = dist.all_reduce(x, async_op=True).get_future()
    doubled = future.then(lambda done: 2 * done.value()[0])
    assert torch.equal(doubled.wait(), 2 * total())
    x = own().t().clone().t()  # not contiguous
    assert torch.equal(dist.all_reduce(x, async_op=True).get_future().wait()[0], total())


@check
def a_work_that_says_it_is_completed_has_put_its_results_in_place() -> None:
    _, size = here()
    apart = [torch.zeros(2, 3) for _ in range(size)]
    work = dist.all_gather(apart, own(), async_op=True)
    assert eventually(work.is_completed)
    assert all(map(torch.equal, apart, [own(each) for each in range(size)]))
    across = own().t().clone().t()
    work = dist.all_reduce(across, async_op=True)
    assert eventually(work.is_success)
    assert torch.equal(across, total())


@check
def a_callback_waits_for_another_future_that_is_under_way() -> None:
    rank, size = here()
    if rank:
        dist.recv(torch.zeros(1), 0)  # when rank 0 has its callback
    x, y, z = (own() for _ in range(3))
    first, second, third = (dist.all_reduce(each, async_op=True).get_future() for each in (x, y, z))
    called, seen = threading.Event(), []

    def callback(_: object) -> None:
        seen.extend(third.wait())
        called.set()

    if not rank:
        assert not first.done()
        first.then(callback)
        for peer in range(1, size):
            dist.send(torch.zeros(1), peer)
        assert called.wait(20)
        assert torch.equal(seen[0], total())
    assert all(torch.equal(each.wait()[0], total()) for each in (first, second, third))


@check
def failed_calls_let_go_of_their_tensors() -> None:
    def alive_after(begin: Callable[[torch.Tensor], object]) -> weakref.ref[torch.Tensor]:
        x = uneven()
        with pytest.raises(pc.CollectiveMismatch):
            begin(x)
        return weakref.ref(x)

    for begin in (
        lambda x: dist.all_reduce(x, async_op=True).wait(),
        lambda x: dist.all_reduce(x, async_op=True).get_future().wait(),
        lambda x: torch.futures.wait_all([dist.all_reduce(x, async_op=True).get_future()]),
    ):
        kept = alive_after(begin)

        def gone(kept: weakref.ref[torch.Tensor] = kept) -> bool:
            gc.collect()
            return kept() is None

        assert eventually(gone)


@check
def a_root_that_is_only_read_may_be_an_expanded_tensor() -> None:
    rank, size = here()
    for background in (False, True):
        x = torch.ones(1).expand(4) if rank == 0 else torch.zeros(4)
        y = torch.ones(1).expand(4) if rank else torch.ones(4)
        for work in (dist.broadcast(x, 0, async_op=background), dist.reduce(y, 0, async_op=background)):
            assert work is None or work.wait()
        assert x.tolist() == [1] * 4
        assert y.tolist() == [1 if rank else size] * 4


@check
def broadcast_and_reduce_have_every_root() -> None:
    rank, size = here()
    for root in range(size):
        for background in (False, True):
            x, y = own(), own()
            works = dist.broadcast(x, root, async_op=background), dist.reduce(y, root, async_op=background)
            for work in works:
                assert work is None or work.wait()
            assert torch.equal(x, own(root))
            assert torch.equal(y, total() if rank == root else own())


@check
def gathered_tensors_are_in_the_order_of_ranks() -> None:
    rank, size = here()
    wanted = [own(each) for each in range(size)]
    apart = [torch.zeros(2, 3) for _ in range(size)]
    dist.all_gather(apart, own())
    assert all(map(torch.equal, apart, wanted))
    whole = torch.zeros(2 * size, 3)
    dist.all_gather(list(whole.chunk(size)), own())  # without a copy into one block
    assert torch.equal(whole, torch.cat(wanted))
    whole.zero_()
    dist.all_gather_into_tensor(whole, own(), async_op=True).wait()
    assert torch.equal(whole, torch.cat(wanted))
    uneven = [torch.zeros(each + 1) for each in range(size)]
    dist.all_gather(uneven, torch.full((rank + 1,), float(rank)))
    assert [x.tolist() for x in uneven] == [[float(each)] * (each + 1) for each in range(size)]
    for root in range(size):
        at_root = [torch.zeros(2, 3) for _ in range(size)] if rank == root else None
        dist.gather(own(), at_root, dst=root)
        assert at_root is None or all(map(torch.equal, at_root, wanted))


@check
def outputs_that_share_memory_are_refused_and_columns_of_a_matrix_do_not() -> None:
    rank, size = here()
    buffer, parts = torch.zeros(2, 3), torch.zeros(size + 1, 3)
    overlapping = [parts[each : each + 2] for each in range(size)]
    calls: dict[str, Callable[[list[torch.Tensor]], object]] = {
        "all_gather": lambda out: dist.all_gather(out, own()),
        "all_to_all": lambda out: dist.all_to_all(out, [own() for _ in range(size)]),
        "all_reduce_coalesced": lambda out: dist.all_reduce_coalesced(out),
    }
    for call in calls.values():
        for outputs in ([buffer] * size, overlapping, [*overlapping[:1], *reversed(overlapping[1:])]):
            with pytest.raises(pc.InvalidArgument, match=r"outputs 0 and [12] share memory"):
                call(outputs)
    with pytest.raises(pc.InvalidArgument, match="is expanded"):
        dist.all_gather_into_tensor(torch.zeros(1, 3).expand(2 * size, 3), own())
    whole, rows = torch.zeros(2, 3, size), torch.zeros(2, 9)
    upwards, downwards = ([whole[..., sign * each] for each in range(size)] for sign in (1, -1))
    mixed = [rows[:, 0:3], rows[:, 6:9], torch.zeros(2, 9)[:, 1:4]][:size]
    for columns in (upwards, downwards, [rows[:, 0:3], rows[:, 3:6], rows[:, 6:9]][:size], mixed):
        dist.all_gather(columns, own())
        assert all(torch.equal(each, own(place)) for place, each in enumerate(columns))
    woven = torch.as_strided(torch.zeros(8), (2, 3), (3, 2))
    dist.broadcast(own() if rank == 0 else woven, 0)
    assert rank == 0 or torch.equal(woven, own(0))


@check
def what_only_some_ranks_cannot_write_is_refused_there_and_the_group_stays_in_step() -> None:
    rank, size = here()
    group = dist.new_group()
    expanded, buffer = torch.zeros(1).expand(4), torch.zeros(4)
    ones = torch.ones(4)
    calls: list[tuple[Callable[[bool], Any], bool]] = [
        (lambda later: dist.broadcast(ones if rank == 0 else expanded, 0, group, later), rank != 0),
        (
            lambda later: dist.reduce(expanded if rank == 0 else ones, 0, group=group, async_op=later),
            rank == 0,
        ),
        (lambda later: dist.gather(ones, [buffer] * size if rank == 0 else None, 0, group, later), rank == 0),
        (
            lambda later: dist.scatter(
                expanded if rank else buffer, [ones] * size if rank == 0 else None, 0, group, later
            ),
            rank != 0,
        ),
    ]
    for call, is_refused in calls:
        before = group._get_sequence_number_for_group()
        for later in (False, True):
            work = None
            try:
                work = call(later)
                assert work is None or work.wait()
                assert not is_refused
            except pc.InvalidArgument as error:
                assert is_refused, error
            if work is not None:
                assert work.is_completed()
                assert work.is_success() != is_refused
                assert isinstance(work.exception(), pc.InvalidArgument) == is_refused
                if is_refused:
                    with pytest.raises(pc.InvalidArgument):
                        work.wait()
        assert group._get_sequence_number_for_group() == before + 2
        x = torch.ones(1)
        dist.all_reduce(x, group=group)
        assert x.item() == size
    if rank == 0:
        dist.send(ones, 1, group)
    elif rank == 1:
        with pytest.raises(pc.InvalidArgument, match="is expanded"):
            dist.recv(expanded, 0, group)


@check
def scattered_and_exchanged_tensors_come_from_the_right_rank() -> None:
    rank, size = here()
    for root in range(size):
        x = torch.zeros(2, 3)
        dist.scatter(x, [own(each) + root for each in range(size)] if rank == root else None, src=root)
        assert torch.equal(x, own() + root)
    x, y = torch.zeros(2, 3), torch.zeros(2, 3)
    dist.reduce_scatter(x, [own(each) for each in range(size)])
    dist.reduce_scatter_tensor(y, torch.cat([own(each) for each in range(size)]), async_op=True).wait()
    assert torch.equal(x, size * own())
    assert torch.equal(y, x)
    sent = torch.arange(size) + 10 * rank
    came = torch.empty_like(sent)
    dist.all_to_all_single(came, sent)
    assert came.tolist() == [10 * each + rank for each in range(size)]
    # rank r gets r + 1 rows
    rows = torch.full((sum(range(size + 1)), 2), float(rank))
    got = torch.zeros(size * (rank + 1), 2)
    splits = [rank + 1] * size, [each + 1 for each in range(size)]
    dist.all_to_all_single(got, rows, *splits, async_op=True).wait()
    assert got[:, 0].tolist() == [float(each) for each in range(size) for _ in range(rank + 1)]
    lists = [torch.zeros(rank + 1) for _ in range(size)]
    dist.all_to_all(lists, [torch.full((each + 1,), float(rank)) for each in range(size)])
    assert [x.tolist() for x in lists] == [[float(each)] * (rank + 1) for each in range(size)]


@check
def coalesced_calls_end_with_their_manager() -> None:
    _, size = here()
    x, y = own(), torch.ones(4)
    with dist._coalescing_manager():
        dist.all_reduce(x)
        dist.all_reduce(y)
    assert torch.equal(x, total())
    assert y.tolist() == [size] * 4
    parts = [torch.zeros(size) for _ in range(3)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for number, part in enumerate(parts):
            dist.all_gather_into_tensor(part, torch.tensor([float(dist.get_rank() + number)]))
    manager.wait()
    assert [part[0].item() for part in parts] == [0, 1, 2]
    with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        z = own()
        dist.all_reduce(z, async_op=True)
    manager.wait()
    assert torch.equal(z, total())
    mixed = [own(), torch.ones(3, dtype=torch.int64), own().t()]
    dist.group.WORLD.allreduce_coalesced(mixed).wait()  # torch.distributed itself refuses two dtypes
    assert torch.equal(mixed[0], total())
    assert mixed[1].tolist() == [size] * 3
    assert torch.equal(mixed[2], total().t())


@check
def a_coalescing_manager_that_fails_keeps_no_tensors() -> None:
    group = dist.new_group()
    with pytest.raises(KeyError), dist._coalescing_manager(group, torch.device("cpu"), async_ops=True):
        raise KeyError
    kept = []
    for background in [False, True] * 5:
        x = torch.ones(3)
        kept.append(weakref.ref(x))
        work = dist.broadcast(x, 0, group=group, async_op=background)
        assert work is None or work.wait()
        del x, work
    gc.collect()
    assert sum(each() is not None for each in kept) <= 1


@check
def every_call_counts_whether_it_blocks_or_not() -> None:
    group = dist.new_group()
    for begin in (
        lambda x: dist.all_reduce(x, group=group),
        lambda x: dist.all_reduce(x, group=group, async_op=True).wait(),
        lambda x: dist.all_gather_into_tensor(torch.empty(dist.get_world_size() * x.numel()), x, group),
    ):
        before = group._get_sequence_number_for_group()
        begin(torch.ones(3))
        with pytest.raises(pc.CollectiveMismatch):
            begin(uneven())
        assert group._get_sequence_number_for_group() == before + 2


@check
def sparse_tensors_are_summed() -> None:
    rank, size = here()
    for op, share in ((ReduceOp.SUM, 1), (ReduceOp.AVG, size)):
        x = torch.sparse_coo_tensor([[0, rank + 1, rank + 1]], [1.0, 2.0, 4.0], (size + 1,))
        dist.all_reduce(x, op)
        assert x.to_dense().tolist() == [size / share] + [6 / share] * size


@check
def objects_travel() -> None:
    rank, size = here()
    all_ranks = [None] * size
    dist.all_gather_object(all_ranks, {"rank": rank})
    assert all_ranks == [{"rank": each} for each in range(size)]
    objects = [f"of {rank}", rank]
    dist.broadcast_object_list(objects, src=size - 1)
    assert objects == [f"of {size - 1}", size - 1]
    mine: list[object] = [None]
    dist.scatter_object_list(mine, list(range(size)) if rank == 0 else None, src=0)
    assert mine == [rank]


@check
def functional_collectives_work_in_eager_mode() -> None:
    rank, size = here()
    group = dist.group.WORLD
    assert torch.equal(functional.all_reduce(own(), "sum", group), total())
    gathered = functional.all_gather_tensor(own(), 0, group)
    assert torch.equal(gathered, torch.cat([own(each) for each in range(size)]))
    assert torch.equal(functional.reduce_scatter_tensor(gathered, "sum", 0, group), size * own())
    assert torch.equal(functional.broadcast(own(), size - 1, group), own(size - 1))
    x, y = functional.all_reduce_coalesced([own(), torch.ones(1)], "sum", group)
    assert torch.equal(x, total())
    assert y.item() == size
    row = functional.all_to_all_single(torch.arange(size) + 10 * rank, None, None, group)
    assert row.tolist() == [10 * each + rank for each in range(size)]


@check
def functional_collectives_that_fail_raise_our_errors() -> None:
    rank, size = here()
    ops, name = torch.ops._c10d_functional, dist.group.WORLD.group_name
    out = torch.zeros(size * uneven().numel())
    for begin in (
        lambda x: ops.all_gather_into_tensor_out(x, size, name, out=out),
        lambda x: ops.all_gather_into_tensor(x, size, name),
        lambda x: ops.all_reduce(x, "sum", name),
        lambda x: ops.all_reduce_coalesced([x], "sum", name)[0],
        lambda x: ops.all_gather_into_tensor_coalesced([x], size, name)[0],
    ):
        with pytest.raises(pc.CollectiveMismatch):
            ops.wait_tensor(begin(uneven()))
    out = torch.zeros(2 * size, 3)
    assert torch.equal(
        ops.wait_tensor(ops.all_gather_into_tensor_out(own(), size, name, out=out)),
        torch.cat([own(each) for each in range(size)]),
    )
    late = group_that_waits(0.3)
    if rank == 0:
        with pytest.raises(pc.CollectiveTimeout, match="rank 1"):
            ops.wait_tensor(ops.all_gather_into_tensor_out(own(), size, late.group_name, out=out))
    dist.barrier()


@check
def the_timeout_of_a_call_reaches_the_group_through_the_dispatcher() -> None:
    rank, size = here()
    gather = torch.ops.c10d._allgather_base_
    for group, error in ((dist.new_group(backend="gloo"), RuntimeError), (dist.new_group(), TimeoutError)):
        if rank == 0:
            began = time.monotonic()
            with pytest.raises(error, match="[Tt]imed out"):
                dist.Work.unbox(gather(torch.zeros(size), torch.ones(1), group.boxed(), True, 300)[1]).wait()
            assert time.monotonic() - began < 10
    dist.barrier()


@check
def groups_are_independent_of_each_other() -> None:
    rank, size = here()
    pair, all_ranks = dist.new_group([0, 1]), dist.new_group()
    # The order of calls differs between ranks, which is allowed for different groups.
    first, second = (all_ranks, dist.group.WORLD) if rank % 2 else (dist.group.WORLD, all_ranks)
    x, y = own(), own()
    works = dist.all_reduce(x, group=first, async_op=True), dist.all_reduce(y, group=second, async_op=True)
    for work in works:
        work.wait()
    assert torch.equal(x, total())
    assert torch.equal(y, total())
    if rank < 2:
        z = own()
        dist.all_reduce(z, group=pair)
        assert torch.equal(z, own(0) + own(1))
    mesh = init_device_mesh("cpu", (1, size), mesh_dim_names=("replicate", "shard"))
    z = own()
    dist.all_reduce(z, group=mesh.get_group("shard"))
    assert torch.equal(z, total())
    dist.destroy_process_group(all_ranks)


@check
def pycollective_acts_on_the_same_world() -> None:
    rank, size = here()
    assert (pc.rank(), pc.size()) == (rank, size)
    assert pc.info().launcher == "torch.distributed"
    assert pc.allreduce(1) == size
    pc.torch.monitored_barrier(dist.group.WORLD, timedelta(seconds=20))
    pc.torch.monitored_barrier(dist.new_group(), 20, wait_all_ranks=True)


@check
def ranks_that_disagree_are_informed_and_the_group_goes_on() -> None:
    rank, size = here()
    with pytest.raises(pc.CollectiveMismatch, match="torch_backend_checks.py:[0-9]+ in ranks_that"):
        dist.all_reduce(torch.ones(3 if rank == 0 else 4))
    work = dist.all_reduce(torch.ones(2, dtype=torch.int32 if rank == 0 else torch.float32), async_op=True)
    with pytest.raises(pc.CollectiveMismatch):
        work.get_future().wait()
    assert isinstance(work.exception(), pc.CollectiveMismatch)
    assert not work.is_success()
    with pytest.raises(pc.InvalidArgument, match="add up"):
        dist.all_to_all_single(torch.ones(2), torch.ones(2), [1] * size, [3] * size)
    with pytest.raises(pc.Unsupported):
        dist.all_reduce(torch.ones(2, dtype=torch.bool), ReduceOp.AVG)
    with pytest.raises(pc.InvalidArgument, match="one device"):
        dist.group.WORLD.allreduce([torch.ones(1), torch.ones(1)])
    x = own()
    dist.all_reduce(x)
    assert torch.equal(x, total())


@check
def a_rank_that_is_late_is_a_timeout_that_names_it() -> None:
    assert dist.new_group(timeout=timedelta(seconds=7))._timeout_s == 7
    group = group_that_waits(0.3)
    if dist.get_rank() == 0:
        began = time.monotonic()
        with pytest.raises(pc.CollectiveTimeout, match="rank 1"):
            pc.torch.monitored_barrier(group, timedelta(seconds=0.3))
        with pytest.raises(pc.CollectiveTimeout, match="rank 1"):
            pc.torch.monitored_barrier(group)
        with pytest.raises(TimeoutError):
            dist.all_reduce(torch.ones(1), group=group)
        assert time.monotonic() - began < 10
    dist.barrier()
