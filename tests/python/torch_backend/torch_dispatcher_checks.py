"""What every rank does in test_torch_backend: calls through torch's dispatcher.

They are calls of our groups and of others. torch_backend_checks.py runs these, too.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch_backend_checking import check, here, own


def of_all_ranks() -> torch.Tensor:
    return torch.cat([own(each) for each in range(here()[1])])


@check
def a_gather_of_another_backend_never_goes_through_python() -> None:
    """NCCL's method returns None to Python for a blocking call."""
    group, called = dist.new_group(backend="gloo"), []
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_allgather_base", "all_gather_single"):
            patch.setattr(
                dist.ProcessGroupGloo, name, lambda *arguments: called.append(arguments), raising=False
            )
        for later in (False, True):
            y = torch.zeros(2 * here()[1], 3)
            work = dist.all_gather_into_tensor(y, own(), group=group, async_op=later)
            assert work is None or work.wait()
            assert torch.equal(y, of_all_ranks())
        assert torch.equal(functional.all_gather_tensor(own(), 0, group), of_all_ranks())
        assert not called


@check
def a_gather_keeps_its_options_and_every_kind_of_tensor_its_kernel() -> None:
    size, gather = here()[1], torch.ops.c10d._allgather_base_
    for group in (dist.group.WORLD, dist.new_group(backend="gloo")):
        y = torch.zeros(2 * size, 3)
        result, work = gather(y, own(), group.boxed(), False, 20_000)
        assert result is y
        assert dist.Work.unbox(work).wait()
        assert torch.equal(y, of_all_ranks())
        shape = torch.empty(2 * size, 3, device="meta"), torch.empty(2, 3, device="meta")
        # torch's own kernel of tensors without memory
        assert gather(*shape, group.boxed())[0].shape == y.shape


@check
def sharded_parameters_over_another_backend_train_as_over_ours() -> None:
    size, seen = here()[1], []
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    for group in (dist.group.WORLD, dist.new_group(backend="gloo")):
        sharded = fully_shard(copy.deepcopy(model), mesh=DeviceMesh.from_group(group, "cpu"))
        optimizer = torch.optim.SGD(sharded.parameters(), lr=1e-3)
        for _ in range(2):
            sharded(own()).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        seen.append([each.full_tensor() for each in sharded.parameters()])
    if size == 2:  # then the order of a sum does not matter
        assert all(map(torch.equal, *seen))
    assert all(map(torch.allclose, *seen))


@check
def compiled_programs_reach_the_group_that_they_name() -> None:
    calls: Callable[[torch.Tensor, dist.ProcessGroup], torch.Tensor] = torch.compile(
        lambda x, group: functional.all_gather_tensor(2 * x, 0, group) + 1,
        backend="aot_eager",
        fullgraph=True,
    )
    for group in (dist.group.WORLD, dist.new_group(backend="gloo", timeout=timedelta(seconds=20))):
        before = dist.group.WORLD._get_sequence_number_for_group()
        assert torch.equal(calls(own(), group), 2 * of_all_ranks() + 1)
        made = dist.group.WORLD._get_sequence_number_for_group() - before
        assert made == (group is dist.group.WORLD)
