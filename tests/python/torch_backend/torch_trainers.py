"""PyTorch's tools for training, as programs of 2 ranks that return numbers.

test_torch_trainers.py compares backends. Each program gets a fresh process group and the same seed,
and returns tensors: losses, parameters, what was received. There are two ranks, and the order of
two summands does not matter: the numbers are equal, not only close.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.nn import functional as differentiable
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

Numbers = list[np.ndarray]
Program = Callable[[Path], list[torch.Tensor]]
STEPS = 3
PROGRAMS: dict[str, Program] = {}
# Kept, because a gloo group with its last reference in a callback joins its own thread, which ends
# the process.
ALIVE: list[dist.ProcessGroup] = []


def program(function: Program) -> Program:
    PROGRAMS[function.__name__] = function
    return function


def run(folder: str, backends: list[str], names: list[str]) -> dict[str, dict[str, Numbers | str]]:
    """Runs these programs on each backend.

    Returns their numbers, or the traceback of what they raised.
    """
    torch.set_num_threads(1)
    return {name: {each: outcome(name, each, Path(folder)) for each in backends} for name in names}


def outcome(name: str, backend: str, folder: Path) -> Numbers | str:
    place = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    begin = time.monotonic()
    dist.init_process_group(
        backend,
        init_method=f"file://{folder}/store.{name}.{backend}",
        rank=place[0],
        world_size=place[1],
        timeout=timedelta(seconds=20),
    )
    torch.manual_seed(7)
    torch._dynamo.reset()
    try:
        assert dist.get_backend() == backend
        if backend == "gloo":
            ALIVE.append(dist.group.WORLD)
        return [each.detach().double().numpy().copy() for each in PROGRAMS[name](folder)]
    except (Exception, CheckpointException):  # CheckpointException is no Exception
        return traceback.format_exc()
    finally:
        dist.destroy_process_group()
        print(f"{time.monotonic() - begin:5.2f} s {name} {backend}")


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))


def batch(step: int, rank: int | None = None) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * step + (dist.get_rank() if rank is None else rank))
    return torch.randn(4, 8, generator=generator)


def full(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    before_step: Callable[[], Any] = lambda: None,
    of: Callable[[int], torch.Tensor] = batch,
) -> list[torch.Tensor]:
    """Returns the losses, and then the parameters."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for step in range(STEPS):
        loss = full(model(of(step)).square().mean())
        loss.backward()
        before_step()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss)
    return [*losses, *(full(each) for each in model.parameters())]


# ---- DistributedDataParallel


@program
def ddp(folder: Path) -> list[torch.Tensor]:
    model = DistributedDataParallel(nn.Sequential(net(), nn.BatchNorm1d(8)))  # with buffers
    return [*train(model), *(each for each in model.buffers())]


@program
def ddp_of_a_static_graph(folder: Path) -> list[torch.Tensor]:
    return train(DistributedDataParallel(net(), static_graph=True))


@program
def ddp_with_gradients_as_views_of_many_buckets(folder: Path) -> list[torch.Tensor]:
    return train(DistributedDataParallel(net(), gradient_as_bucket_view=True, bucket_cap_mb=0.0002))


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.branches = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.branches[0](x) + self.branches[1 + dist.get_rank()](x)


@program
def ddp_that_finds_parameters_unused_on_one_rank(folder: Path) -> list[torch.Tensor]:
    return train(DistributedDataParallel(Branches(), find_unused_parameters=True))


@program
def ddp_join_with_uneven_inputs(folder: Path) -> list[torch.Tensor]:
    model = DistributedDataParallel(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with model.join():
        for step in range(2 + 2 * dist.get_rank()):
            model(batch(step)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    return list(model.parameters())


@program
def ddp_with_fp16_compression(folder: Path) -> list[torch.Tensor]:
    model = DistributedDataParallel(net())
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    return train(model)


@program
def ddp_with_power_sgd(folder: Path) -> list[torch.Tensor]:
    model = DistributedDataParallel(net())
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    return train(model)


@program
def ddp_no_sync(folder: Path) -> list[torch.Tensor]:
    model = DistributedDataParallel(net())
    with model.no_sync():
        model(batch(0)).square().mean().backward()
    alone = [each.grad.clone() for each in model.parameters()]
    return [*alone, *train(model)]


@program
def ddp_with_sparse_gradients(folder: Path) -> list[torch.Tensor]:
    model = DistributedDataParallel(nn.Sequential(nn.Embedding(10, 4, sparse=True), nn.Linear(4, 2)))
    rank = dist.get_rank()
    words = torch.tensor([[1 + rank, 2, 5], [2, 7, 7 + rank]])  # some rows of both ranks, some of one
    return train(model, torch.optim.SGD(model.parameters(), lr=0.1), of=lambda step: words + step % 2)


@program
def zero_redundancy_optimizer(folder: Path) -> list[torch.Tensor]:
    model = DistributedDataParallel(net())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    numbers = train(model, optimizer)
    optimizer.consolidate_state_dict(to=0)
    if dist.get_rank() == 0:
        numbers += [each["exp_avg"] for each in optimizer.state_dict()["state"].values()]
    return numbers


# ---- sharded parameters


def sharded(mesh: Any = None) -> nn.Module:
    model = net()
    for each in (model[0], model[2], model):
        fully_shard(each, mesh=mesh)
    return model


@program
def fsdp2(folder: Path) -> list[torch.Tensor]:
    mesh = init_device_mesh("cpu", (2,))
    model, norms = sharded(mesh), []
    numbers = train(
        model,
        before_step=lambda: norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.1).full_tensor()),
    )
    return [*numbers, *norms]


def hsdp(shape: tuple[int, int]) -> list[torch.Tensor]:
    return train(sharded(init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard"))))


@program
def hsdp_of_two_replicas(folder: Path) -> list[torch.Tensor]:
    return hsdp((2, 1))


@program
def hsdp_of_two_shards(folder: Path) -> list[torch.Tensor]:
    return hsdp((1, 2))


@program
def fsdp1(folder: Path) -> list[torch.Tensor]:
    model = FullyShardedDataParallel(net(), device_id=torch.device("cpu"))
    numbers, norms = [], []
    numbers = train(model, before_step=lambda: norms.append(model.clip_grad_norm_(0.1)))
    with FullyShardedDataParallel.summon_full_params(model):
        return [*numbers, *norms, *(each.clone() for each in model.parameters())]


# ---- DTensor and tensor parallelism


@program
def dtensor_redistribution(folder: Path) -> list[torch.Tensor]:
    mesh = init_device_mesh("cpu", (2,))
    whole = torch.arange(35.0).view(5, 7)  # uneven both ways
    local = torch.arange(24.0).view(4, 6) * (dist.get_rank() + 1)
    numbers = []
    for source in (Shard(0), Shard(1), Replicate()):
        for target in (Shard(0), Shard(1), Replicate()):
            there = distribute_tensor(whole, mesh, [source]).redistribute(mesh, [target])
            numbers += [there.to_local(), there.full_tensor()]
    for partial in (Partial("sum"), Partial("max"), Partial("avg")):
        partly = DTensor.from_local(local, mesh, [partial])
        numbers += [partly.redistribute(mesh, [Shard(0)]).to_local(), partly.full_tensor()]
    return numbers


@program
def dtensor_matmul(folder: Path) -> list[torch.Tensor]:
    mesh = init_device_mesh("cpu", (2,))
    left, right = torch.arange(12.0).view(4, 3), torch.arange(24.0).view(3, 8)
    numbers = []
    for a in (Shard(0), Shard(1), Replicate()):
        for b in (Shard(0), Shard(1), Replicate()):
            x = distribute_tensor(left, mesh, [a]).requires_grad_()
            product = x @ distribute_tensor(right, mesh, [b])
            product.full_tensor().square().sum().backward()
            numbers += [product.full_tensor(), x.grad.full_tensor()]
    return numbers


@program
def tensor_parallel_columns_and_rows(folder: Path) -> list[torch.Tensor]:
    mesh = init_device_mesh("cpu", (2,))
    model = parallelize_module(net(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return train(model, of=lambda step: batch(step, rank=0))


@program
def sequence_parallel(folder: Path) -> list[torch.Tensor]:
    mesh = init_device_mesh("cpu", (2,))
    model = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 8), nn.LayerNorm(8))
    plan = {
        "0": ColwiseParallel(),
        "1": RowwiseParallel(output_layouts=Shard(0)),
        "2": SequenceParallel(sequence_dim=0),
    }
    return train(parallelize_module(model, mesh, plan), of=lambda step: batch(step, rank=0))


@program
def loss_of_sharded_logits(folder: Path) -> list[torch.Tensor]:
    mesh = init_device_mesh("cpu", (2,))
    plan = {"0": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)}
    model = parallelize_module(nn.Sequential(nn.Linear(8, 6)), mesh, plan)
    with loss_parallel():
        loss = cross_entropy(model(batch(0, rank=0)), torch.arange(4))
        loss.backward()
    return [full(loss), *(full(each.grad) for each in model.parameters())]


@program
def tensor_parallel_and_fsdp2_in_one_mesh(folder: Path) -> list[torch.Tensor]:
    mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("data", "tensor"))
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    model = fully_shard(parallelize_module(net(), mesh["tensor"], plan), mesh=mesh["data"])
    return train(model, of=lambda step: batch(step, rank=0))


# ---- checkpoints and pipelines


@program
def checkpoint(folder: Path) -> list[torch.Tensor]:
    place = str(folder / f"checkpoint.{dist.get_backend()}")
    mesh = init_device_mesh("cpu", (2,))
    model = sharded(mesh)
    train(model)
    dcp.save(get_model_state_dict(model), checkpoint_id=place)
    torch.manual_seed(8)
    other = sharded(mesh)
    loaded = get_model_state_dict(other)
    dcp.load(loaded, checkpoint_id=place)
    set_model_state_dict(other, loaded)
    for mine, saved in zip(other.parameters(), model.parameters(), strict=True):
        assert torch.equal(mine.full_tensor(), saved.full_tensor())
    return [each.full_tensor() for each in other.parameters()]


@program
def checkpoint_in_the_background(folder: Path) -> list[torch.Tensor]:
    place = str(folder / f"background.{dist.get_backend()}")
    values = torch.arange(6.0) + 6 * dist.get_rank()
    saved = {"x": DTensor.from_local(values, init_device_mesh("cpu", (2,)), [Shard(0)])}
    # Its thread has calls of its own, so it needs a group of its own.
    dcp.async_save(saved, checkpoint_id=place, process_group=dist.new_group()).result()
    loaded = {"x": torch.zeros(12)}
    dcp.load(loaded, checkpoint_id=place)
    return [loaded["x"]]


def pipeline(kind: Any) -> list[torch.Tensor]:
    rank = dist.get_rank()
    part = [nn.Linear(8, 16), nn.Linear(16, 8)][rank]
    schedule = kind(
        PipelineStage(part, rank, 2, torch.device("cpu")),
        n_microbatches=4,
        loss_fn=lambda y, target: (y - target).square().mean(),
    )
    x, losses = torch.arange(64.0).view(8, 8) / 64, []
    for _ in range(2):
        if rank == 0:
            schedule.step(x)
        else:
            schedule.step(target=x.flip(0), losses=losses)
    return [*losses, *(each.grad for each in part.parameters())]


@program
def pipeline_gpipe(folder: Path) -> list[torch.Tensor]:
    return pipeline(ScheduleGPipe)


@program
def pipeline_1f1b(folder: Path) -> list[torch.Tensor]:
    return pipeline(Schedule1F1B)


# ---- torch.compile


@program
def compiled_ddp(folder: Path) -> list[torch.Tensor]:
    return train(torch.compile(DistributedDataParallel(net()), backend="aot_eager"))


@program
def compiled_fsdp2(folder: Path) -> list[torch.Tensor]:
    return train(torch.compile(sharded(init_device_mesh("cpu", (2,))), backend="aot_eager"))


def collectives(x: torch.Tensor) -> list[torch.Tensor]:
    group = dist.group.WORLD
    works = [
        funcol.all_reduce(x, "sum", group),
        funcol.all_gather_tensor(x, 0, group),
        funcol.reduce_scatter_tensor(x * 2, "sum", 0, group),
        funcol.all_to_all_single(x + 1, None, None, group),
        funcol.broadcast(x * 3, 1, group),
        *funcol.all_reduce_coalesced([x, x * 2], "max", group),
        *funcol.all_gather_into_tensor_coalesced([x, x * 2], group),
        *funcol.reduce_scatter_tensor_coalesced([x, x * 2], "sum", [0, 0], group),
    ]
    return [funcol.wait_tensor(each) + 1 for each in works]


def mine() -> torch.Tensor:
    return torch.arange(8.0).view(4, 2) + 10 * dist.get_rank()


@program
def functional_collectives(folder: Path) -> list[torch.Tensor]:
    return collectives(mine())


@program
def functional_collectives_in_one_graph(folder: Path) -> list[torch.Tensor]:
    return torch.compile(collectives, fullgraph=True, backend="aot_eager")(mine())


def sum_and_parts(x: torch.Tensor) -> torch.Tensor:
    total = funcol.all_reduce(x, "sum", dist.group.WORLD)
    return funcol.all_gather_tensor(total * 2, 0, dist.group.WORLD)


@program
def functional_collectives_through_inductor(folder: Path) -> list[torch.Tensor]:
    # a single kernel, because its compiler is slow
    return [torch.compile(sum_and_parts, fullgraph=True)(mine())]


def exchange(x: torch.Tensor) -> list[torch.Tensor]:
    received, peer = torch.zeros(4, 2), 1 - dist.get_rank()
    sending = dist.isend(x * 2, peer)
    dist.irecv(received, peer).wait()
    sending.wait()
    total, parts = received + 1, [torch.zeros(4, 2), torch.zeros(4, 2)]
    dist.all_reduce(total)
    dist.all_gather(parts, total + 1)
    work = dist.broadcast(total, 1, async_op=True)
    work.wait()
    return [received, total + 1, *parts]


@program
def calls_that_break_a_graph(folder: Path) -> list[torch.Tensor]:
    compiled = torch.compile(exchange, backend="aot_eager")
    return [*compiled(mine()), *compiled(mine() + 1)]


# ---- further calls


@program
def differentiable_collectives(folder: Path) -> list[torch.Tensor]:
    x = mine().requires_grad_()
    (gathered,) = [torch.cat(differentiable.all_gather(x))]
    total = differentiable.all_reduce(x * 2)
    part = differentiable.reduce_scatter(torch.zeros(2, 2), list(x.chunk(2)))
    swapped = torch.cat(differentiable.all_to_all([torch.zeros(2, 2), torch.zeros(2, 2)], list(x.chunk(2))))
    (gathered.square().sum() + total.square().sum() + part.square().sum() + swapped.square().sum()).backward()
    return [gathered, total, part, swapped, x.grad]


@program
def objects(folder: Path) -> list[torch.Tensor]:
    rank = dist.get_rank()
    own = {"rank": rank, "numbers": list(range(5 * (rank + 1)))}  # of another length on each rank
    gathered, scattered = [None] * 2, [None]
    dist.all_gather_object(gathered, own)
    at_root = [None] * 2 if rank == 0 else None
    dist.gather_object(own, at_root)
    shared = [own, "text"] if rank == 1 else [None, None]
    dist.broadcast_object_list(shared, src=1)
    dist.scatter_object_list(scattered, [[0], [1, 2]] if rank == 0 else None, src=0)
    message = [own]
    dist.send_object_list(message, 1) if rank == 0 else dist.recv_object_list(message, 0)
    assert shared[1] == "text"
    lists = [each["numbers"] for each in [*gathered, *(at_root or []), shared[0], *message]]
    return [torch.tensor(each) for each in [*lists, scattered[0]]]


@program
def batch_isend_irecv(folder: Path) -> list[torch.Tensor]:
    peer = 1 - dist.get_rank()
    received = [torch.zeros(4, 2), torch.zeros(3)]
    sent = [mine(), torch.full((3,), float(dist.get_rank()))]
    calls = [dist.P2POp(dist.isend, each, peer) for each in sent]
    calls += [dist.P2POp(dist.irecv, each, peer) for each in received]
    for work in dist.batch_isend_irecv(calls):
        work.wait()
    return received


@program
def device_mesh(folder: Path) -> list[torch.Tensor]:
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("rows", "columns"))
    sums = []
    for name in ("rows", "columns"):
        x = mine()
        dist.all_reduce(x, group=mesh[name].get_group())
        sums.append(x)
    flat = mine()
    dist.all_reduce(flat, group=mesh._flatten("all").get_group())
    return [*sums, flat, torch.tensor(mesh.get_coordinate())]


@program
def coalesced_calls(folder: Path) -> list[torch.Tensor]:
    from torch.distributed.distributed_c10d import _coalescing_manager

    tensors = [mine(), mine() * 2]
    if dist.get_backend() == "gloo":  # it has no coalescing
        for each in tensors:
            dist.all_reduce(each)
        return tensors
    with _coalescing_manager(device=torch.device("cpu"), async_ops=True) as work:
        for each in tensors:
            dist.all_reduce(each)
    work.wait()
    return tensors
