"""torch.distributed over the backend "pycollective" in a world of one: calls copy at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from arrays import torch

import pycollective as pc

if torch is None:
    pytest.skip("torch is not installed", allow_module_level=True)

import torch.distributed as dist

from pycollective.torch.backend import call_arguments, process_group

pytestmark = pytest.mark.filterwarnings("ignore:.*deprecated:FutureWarning")


def every_call(x: torch.Tensor, y: torch.Tensor, is_async: bool) -> dict[str, Callable[[], object]]:
    rows = [len(x)]
    return {
        "all_reduce": lambda: dist.all_reduce(x, async_op=is_async),
        "all_reduce_coalesced": lambda: dist.all_reduce_coalesced([x, y], async_op=is_async),
        "broadcast": lambda: dist.broadcast(x, 0, async_op=is_async),
        "reduce": lambda: dist.reduce(x, 0, async_op=is_async),
        "all_gather": lambda: dist.all_gather([y], x, async_op=is_async),
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(y, x, async_op=is_async),
        "gather": lambda: dist.gather(x, [y], 0, async_op=is_async),
        "scatter": lambda: dist.scatter(y, [x], 0, async_op=is_async),
        "reduce_scatter": lambda: dist.reduce_scatter(y, [x], async_op=is_async),
        "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(y, x, async_op=is_async),
        "all_to_all": lambda: dist.all_to_all([y], [x], async_op=is_async),
        "all_to_all_single": lambda: dist.all_to_all_single(y, x, async_op=is_async),
        "all_to_all_single_of_rows": lambda: dist.all_to_all_single(y, x, rows, rows, async_op=is_async),
        "barrier": lambda: dist.barrier(async_op=is_async),
    }


# Calls that copy their input to another tensor.
MOVING = re.compile("(all_)?gather|scatter|reduce_scatter|all_to_all")


@pytest.fixture
def world_of_one() -> Iterator[dist.ProcessGroup]:
    dist.init_process_group("pycollective", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.group.WORLD
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.mark.parametrize("length", [6, 1 << 21])
@pytest.mark.parametrize("is_async", [False, True])
def test_every_call_of_a_world_of_one_is_done_when_it_returns(
    world_of_one: dist.ProcessGroup, length: int, is_async: bool
) -> None:
    numbers = torch.arange(float(length)).reshape(2, -1)
    across = torch.zeros(length // 2, 2).t()
    for x, y in ((numbers.clone(), torch.zeros_like(numbers)), (numbers.clone().requires_grad_(), across)):
        for name, call in every_call(x, y, is_async).items():
            y.zero_()
            work = call()
            assert (work is None) == (not is_async), name
            if isinstance(work, torch.futures.Future):
                assert work.done(), name
            elif work is not None:
                assert (work.is_completed(), work.is_success(), work.wait()) == (True, True, True), name
            assert torch.equal(x, numbers), name
            assert torch.equal(y, numbers) == bool(MOVING.match(name)), name
            assert not y.requires_grad


def test_what_is_large_in_a_world_of_one_is_copied_by_torch_and_what_does_not_fit_is_refused(
    world_of_one: dist.ProcessGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = torch.ones(1 << 21), torch.zeros(1 << 21)
    for wrong in (y.double(), y[1:]):
        with pytest.raises(pc.InvalidArgument):
            world_of_one.alltoall([wrong], [x]).wait()
    with pytest.raises(pc.InvalidArgument):
        dist.all_reduce_coalesced([y, y[:2]])
    scaled = dist._make_nccl_premul_sum(0.5)
    dist.reduce_scatter_tensor(y, x, scaled)
    assert y[-1] == 0.5
    ended, group = x.clone(), world_of_one
    with monkeypatch.context() as patch:
        patch.setattr(world_of_one, "group", None)
        dist.all_to_all_single(y, x)
        saved = (x.requires_grad_() * y).sum()
        dist.all_gather_into_tensor(
            y, torch.ones(1 << 21)
        )  # the program itself must preserve what autograd has saved
        saved.backward()
    assert torch.equal(y, ended)
    dist.destroy_process_group()
    with pytest.raises(pc.NotInitialized):
        group.all_to_all_single(y, ended, [], [])


class OlderOptions:
    """Options as in torch 2.5: some kinds do not state whether the caller waits."""

    def __init__(self) -> None:
        self.reduceOp = dist.ReduceOp.SUM
        self.rootRank = 0
        self.device_ids: list[int] = []
        self.timeout = dist.AllreduceOptions().timeout


@pytest.mark.timeout(60)
def test_options_of_older_torch_are_those_of_calls_in_the_background(
    world_of_one: dist.ProcessGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_background = call_arguments.in_background_of([OlderOptions])
    newer = dist.AllreduceOptions()
    for is_async in (True, False):
        newer.asyncOp = is_async
        assert in_background(newer) == is_async
        assert call_arguments.in_background(newer) == is_async
    assert in_background(OlderOptions())
    monkeypatch.setattr(process_group, "in_background", in_background)
    kinds = "Allreduce", "AllreduceCoalesced", "AllToAll", "Barrier", "Gather", "Reduce"
    for kind in kinds:
        monkeypatch.setattr(process_group, f"{kind}Options", OlderOptions)
    x, y = torch.arange(4.0), torch.zeros(4)
    works = [
        world_of_one.allreduce([x], OlderOptions()),
        world_of_one.allreduce_coalesced([x, y], OlderOptions()),
        world_of_one.reduce([x], OlderOptions()),
        world_of_one.gather([[y]], [x], OlderOptions()),
        world_of_one.alltoall_base(y, x, [], [], OlderOptions()),
        world_of_one.alltoall([y], [x], OlderOptions()),
        world_of_one.barrier(OlderOptions()),
    ]
    assert all(work.wait() for work in works)
    assert x.tolist() == y.tolist() == [0, 1, 2, 3]
