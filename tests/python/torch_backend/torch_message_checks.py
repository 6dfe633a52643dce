"""What every rank does in test_torch_backend: messages between two ranks.

torch_backend_checks.py runs these, too.
"""

from __future__ import annotations

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch_backend_checking import check, group_that_waits, here, own
from waiting import eventually

import pycollective as pc


@check
def messages_go_between_ranks() -> None:
    rank, size = here()
    right, left = (rank + 1) % size, (rank - 1) % size
    x = torch.zeros(2, 3)
    for work in dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, own(), right), dist.P2POp(dist.irecv, x, left)]
    ):
        work.wait()
    assert torch.equal(x, own(left))
    if rank == 0:
        for _ in range(size - 1):
            source = dist.recv(x)
            assert torch.equal(x, own(source))
        first, second = torch.zeros(1), torch.zeros(1)
        works = dist.irecv(second, 1, tag=2), dist.irecv(first, 1, tag=1)
        assert [work.wait() for work in works] == [True, True]
        assert (first.item(), second.item()) == (1, 2)
    else:
        dist.send(own(), 0)
        if rank == 1:
            dist.send(torch.tensor([1.0]), 0, tag=1)
            dist.send(torch.tensor([2.0]), 0, tag=2)


@check
def a_receive_from_any_source_is_under_way_before_a_wait() -> None:
    rank, size = here()
    group = group_that_waits(10)
    right, left = (rank + 1) % size, (rank - 1) % size
    x = torch.zeros(1 << 18)  # more than a message that is sent before the receiver requests it
    work = dist.irecv(x, group=group)
    dist.send(torch.full_like(x, rank), right, group=group)
    work.wait()
    assert x.unique().tolist() == [left]
    assert work._source_rank() == left
    high, low = torch.zeros(1 << 18), torch.zeros(1 << 18)
    works = dist.irecv(high, group=group, tag=2), dist.irecv(low, group=group, tag=1)
    dist.isend(torch.full_like(x, 1), right, group=group, tag=1).wait()
    dist.isend(torch.full_like(x, 2), right, group=group, tag=2).wait()
    futures = [work.get_future() for work in works]
    assert [future.wait()[0][0].item() for future in futures] == [2, 1]


@check
def looking_at_a_receive_from_any_source_changes_nothing() -> None:
    rank, _ = here()
    group = group_that_waits(10)
    across = torch.zeros(3, 1 << 16).t()
    if rank == 0:
        works = [dist.irecv(across, group=group)]
        works += [dist.irecv(torch.zeros(1), group=group) for _ in range(3)]
        assert not any(work.is_completed() for work in works)
        with pytest.raises(pc.CollectiveTimeout):
            works[0].wait(timedelta(milliseconds=1))
        future = works[1].get_future()
        assert not future.done()
        dist.send(torch.zeros(1), 1, group=group)
        assert eventually(works[0].is_completed)
        assert across.unique().tolist() == [5]
        assert [work._source_rank() for work in works] == [1] * 4
        assert future.wait()[0].item() == 1
        # in the order in which they were made
        assert [work.result()[0].item() for work in works[1:]] == [1, 2, 3]
    elif rank == 1:
        dist.recv(torch.zeros(1), 0, group=group)
        dist.send(torch.full((1 << 16, 3), 5.0), 0, group=group)
        for number in (1.0, 2.0, 3.0):
            dist.send(torch.tensor([number]), 0, group=group)


@check
def a_receive_from_any_source_fails_with_our_errors() -> None:
    rank, _ = here()
    group = group_that_waits(0.3)
    work = dist.irecv(torch.zeros(2), group=group)  # without a matching send
    with pytest.raises(pc.CollectiveTimeout):
        work.get_future().wait()
    with pytest.raises(pc.CollectiveTimeout):
        work.wait()
    assert work.is_completed()
    assert not work.is_success()
    assert isinstance(work.exception(), pc.CollectiveTimeout)
    with pytest.raises(pc.CollectiveTimeout):
        dist.recv(torch.zeros(2), group=group)
    dist.barrier()
    if rank == 0:
        work = dist.irecv(torch.zeros(2))
        with pytest.raises(pc.CollectiveMismatch):
            work.wait()
    elif rank == 1:
        dist.send(torch.zeros(3), 0)
