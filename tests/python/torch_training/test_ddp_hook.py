"""pc.torch.ddp_comm_hook: torch's own DistributedDataParallel over gloo, with our buckets."""

from __future__ import annotations

import copy
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from arrays import torch
from waiting import eventually

import pycollective as pc
from pycollective import testing

if torch is None:
    pytest.skip("torch is not installed", allow_module_level=True)

import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from pycollective.torch.ddp_hook import ddp_comm_hook


def collectives_made() -> int:
    return sum(call["kind"] == "collective" for call in pc.debug.dump()["calls"])


def trained(store: str) -> str:
    torch.set_num_threads(1)
    rank, size = pc.rank(), pc.size()
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    model = nn.Sequential(*[nn.Linear(512, 512) for _ in range(3)])
    for number, parameter in enumerate(model.parameters()):
        parameter.data = torch.randint(
            -1, 2, parameter.shape, generator=torch.Generator().manual_seed(number)
        ).float()
    alone = copy.deepcopy(model)
    batches = torch.randint(-1, 2, (2, size, 3, 512), generator=torch.Generator().manual_seed(9)).float()
    ddp = DistributedDataParallel(model, bucket_cap_mb=1)
    ddp.register_comm_hook(None if size == 2 else pc.world(), ddp_comm_hook)
    before = collectives_made()
    for batch in batches:
        (ddp(batch[rank]).sum() * size).backward()
    assert collectives_made() - before >= 4, "several buckets, twice"
    for batch in batches.flatten(0, 1):
        alone(batch).sum().backward()
    for mine, theirs in zip(model.parameters(), alone.parameters(), strict=True):
        assert torch.equal(mine.grad, theirs.grad)
    ddp.zero_grad()
    loss = ddp(batches[0, rank]).sum()
    pc.barrier()
    Path(f"{store}.{rank}").touch()
    if rank == 1:  # not before all have left the barrier, which its death would fail for the later ranks
        eventually(lambda: all(Path(f"{store}.{each}").exists() for each in range(size)))
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(pc.PeerFailure) as raised:
        loss.backward()
    return str(raised.value)


@pytest.mark.parametrize("n", [2, 3])
def test_gradients_equal_one_process_and_a_rank_that_dies_is_an_error_of_backward(
    n: int, tmp_path: Path
) -> None:
    with pytest.raises(testing.WorldFailed) as failed:
        testing.run(trained, n, str(tmp_path / "store"))
    assert set(failed.value.errors) == {1}, failed.value
    assert all("rank 1" in text for text in failed.value.results.values())


class Bucket:
    def __init__(self, values: Any) -> None:
        self.values = values

    def buffer(self) -> Any:
        return self.values


def test_the_future_is_that_of_the_buffer(world_of_one: pc.Group) -> None:
    values = torch.ones(3)
    assert ddp_comm_hook(world_of_one, Bucket(values)).wait() is values  # type: ignore[arg-type]
    with pytest.raises(pc.InvalidArgument, match="group must be"):
        ddp_comm_hook(7, Bucket(values))  # type: ignore[arg-type]
