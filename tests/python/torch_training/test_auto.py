"""pycollective.torch.auto: training gives the same numbers on any number of ranks as alone.

Every check trains twice: alone, with torch as it is, and in applied(); all numbers must agree.
"""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import launchers
import named_checks
import numpy as np
import pytest

import pycollective as pc

if launchers.torch() is not None:
    pytest.skip(str(launchers.torch()), allow_module_level=True)

import torch
from auto_training import Numbers, assert_same, data, net, state, step_with, train
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
)

from pycollective.torch.auto import applied

CHECKS = named_checks.Checks()
pytestmark = pytest.mark.timeout(240)  # the first test of each kind waits for all launches


def trainer(function: Callable[[list[int]], Numbers]) -> Callable[[list[int]], Numbers]:
    """Registers a check.

    It appends the sizes of the batches that it sees to a list, and must compute the same alone.
    """
    CHECKS.add(function.__name__, lambda: assert_same(function), 2, 3)
    return function


@trainer
def shuffled_batches_of_any_size_train_as_alone(parts: list[int]) -> Numbers:
    numbers = []
    for count in (24, 23, 22):
        torch.manual_seed(3)
        numbers += train(DataLoader(data(count), batch_size=5, shuffle=True), parts)
    return numbers


@trainer
def drop_last_and_a_last_batch_smaller_than_the_world(parts: list[int]) -> Numbers:
    torch.manual_seed(3)
    return [
        *train(DataLoader(data(23), batch_size=6, shuffle=True, drop_last=True), parts),
        *train(DataLoader(data(26), batch_size=6, shuffle=True, drop_last=False), parts),
    ]


@trainer
def evaluation_inside_the_loop_sees_whole_batches(parts: list[int]) -> Numbers:
    return train(DataLoader(data(23), batch_size=5), parts, evaluated=True)


@trainer
def samplers_of_the_script_draw_the_same_on_all_ranks(parts: list[int]) -> Numbers:
    generator = torch.Generator().manual_seed(8)
    sampler = RandomSampler(data(30), replacement=True, num_samples=26, generator=generator)
    batches = [[0, 1, 2, 3], [9, 8, 7], [4, 3, 2, 1, 0, 9], [11, 10, 5, 6]]
    return [
        *train(DataLoader(data(30), batch_size=4, sampler=sampler), parts),
        *train(DataLoader(data(12), batch_sampler=batches), parts),
        *train(
            DataLoader(data(12), batch_sampler=BatchSampler(SequentialSampler(range(12)), 5, False)), parts
        ),
    ]


class Stream(IterableDataset):  # type: ignore[type-arg]
    def __iter__(self) -> Iterator[Any]:
        return iter([data(23)[place] for place in range(23)])

    def __len__(self) -> int:
        return 23


@trainer
def batches_of_a_stream_are_cut_when_they_are_loaded(parts: list[int]) -> Numbers:
    return train(DataLoader(Stream(), batch_size=5), parts)


@trainer
def accumulated_gradients_are_those_of_all_samples(parts: list[int]) -> Numbers:
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loader = DataLoader(data(23), batch_size=4)
    numbers = []
    for epoch in range(2):
        for step, (x, y) in enumerate(loader):
            parts.append(len(x))
            loss = (model(x) - y).square().mean() / 3
            loss.backward()
            numbers.append(loss.item())
            if step % 3 == 2:
                numbers.append(float(nn.utils.clip_grad_norm_(model.parameters(), 0.05)))
                optimizer.step()
                optimizer.zero_grad(set_to_none=bool(epoch))
    return [*numbers, *state(model)]


@trainer
def a_disabled_scaler_and_a_scheduler_that_looks_at_losses(parts: list[int]) -> Numbers:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    numbers = []
    for _ in range(3):
        for x, y in DataLoader(data(23), batch_size=5):
            parts.append(len(x))
            optimizer.zero_grad()
            loss = (model(x) - y).square().mean()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            scheduler.step(loss.item())
            numbers += [loss.item(), optimizer.param_groups[0]["lr"]]
    return [*numbers, *state(model)]


def mixed_precision(parts: list[int]) -> Numbers:
    model = net(norm=False).float()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    for x, y in DataLoader(data(24), batch_size=6):
        parts.append(len(x))
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.mse_loss(model(x.float()).float(), y.float())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return state(model)


@CHECKS.on(2, 3)
def mixed_precision_trains_nearly_as_alone() -> None:
    assert_same(mixed_precision, tolerance=1e-3)


@trainer
def two_optimizers_of_two_nets_that_see_each_other(parts: list[int]) -> Numbers:
    first, second = net(), nn.Sequential(nn.Linear(1, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).double()
    one = torch.optim.SGD(first.parameters(), lr=0.02)
    two = torch.optim.SGD(second.parameters(), lr=0.01)
    numbers = []
    for x, y in DataLoader(data(23), batch_size=5):
        parts.append(len(x))
        made = first(x)
        two.zero_grad()
        (second(y).mean() - second(made.detach()).mean()).backward()
        two.step()
        one.zero_grad()
        loss = second(made).square().mean()
        loss.backward()
        one.step()
        numbers.append(loss.item())
    return [*numbers, *state(first), *state(second)]


@trainer
def optimizers_may_come_late_and_parameters_thaw(parts: list[int]) -> Numbers:
    model = net()
    model[0].requires_grad_(False)
    optimizer: torch.optim.Optimizer = torch.optim.SGD(model[1:].parameters(), lr=0.1)
    loader = DataLoader(data(23), batch_size=5)
    numbers = []
    for epoch in range(4):
        if epoch == 1:
            optimizer.add_param_group({"params": list(model[0].parameters()), "lr": 0.05})
        if epoch == 2:
            model[0].requires_grad_(True)
        if epoch == 3:
            optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.5)
        for x, y in loader:
            parts.append(len(x))
            numbers.append(step_with(model, optimizer, x, y))
    return [*numbers, *state(model)]


@trainer
def two_loaders_at_once_and_next_of_iter(parts: list[int]) -> Numbers:
    model = net(norm=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    one, two = DataLoader(data(24), batch_size=6), DataLoader(data(48), batch_size=12)
    numbers = []
    for _ in range(2):
        for (x, y), (u, v) in zip(one, two, strict=True):
            parts.append(len(x))
            optimizer.zero_grad()
            loss = (model(x) - y).square().mean() + (model(u) - v).square().mean()
            loss.backward()
            optimizer.step()
            numbers.append(loss.item())
    for _ in range(4):
        x, y = next(iter(one))
        parts.append(len(x))
        numbers.append(step_with(model, optimizer, x, y))
    return [*numbers, *state(model)]


@trainer
def what_a_backward_does_not_use_is_not_stepped(parts: list[int]) -> Numbers:
    torch.manual_seed(1)
    heads = [nn.Linear(3, 1).double() for _ in range(2)]
    optimizer = torch.optim.Adam(nn.ModuleList(heads).parameters(), lr=0.05, weight_decay=0.1)
    numbers: Numbers = []
    for step, (x, y) in enumerate(DataLoader(data(47), batch_size=6)):
        parts.append(len(x))
        numbers.append(step_with(heads[step % 3 == 2], optimizer, x, y))
        numbers.append(float(heads[1].weight.grad is None))
    return [*numbers, *state(heads[0]), *state(heads[1])]


@trainer
def one_step_after_all_batches_of_a_loop(parts: list[int]) -> Numbers:
    model = net(norm=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(data(23), batch_size=5)
    for _ in range(5):
        optimizer.zero_grad()
        for x, y in loader:
            parts.append(len(x))
            (model(x) - y).square().mean().div(5).backward()
        optimizer.step()
    return state(model)


@trainer
def a_graph_that_is_kept_goes_backward_again(parts: list[int]) -> Numbers:
    model = net(norm=False)
    weight = nn.Parameter(torch.ones((), dtype=torch.float64))
    optimizer = torch.optim.SGD([*model.parameters(), weight], lr=0.01)
    numbers = []
    for x, y in DataLoader(data(23), batch_size=5):
        parts.append(len(x))
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        weighted = loss * weight  # the product keeps the loss alive
        loss.backward(retain_graph=True)
        weighted.backward(retain_graph=True)
        optimizer.step()
        numbers.append(loss.item())
    return [*numbers, *state(model)]


@trainer
def batches_that_a_training_loop_evaluates_are_whole(parts: list[int]) -> Numbers:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = iter(DataLoader(data(60), batch_size=5))
    numbers = []
    for step, (x, y) in enumerate(batches):
        parts.append(len(x))
        numbers.append(step_with(model, optimizer, x, y))
        if step == 3:
            with torch.no_grad():
                for u, v in itertools.islice(batches, 3):
                    numbers.append(float((model.eval()(u) - v).square().mean()))
            model.train()
    return [*numbers, *state(model)]


class Faulty(TensorDataset):
    def __getitem__(self, place: int) -> Any:
        if place == 1:
            raise ValueError
        return super().__getitem__(place)


@trainer
def a_batch_that_cannot_be_loaded_may_be_left_out(parts: list[int]) -> Numbers:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    drawn = [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9, 2, 3], [4, 5, 6, 7], [4, 5, 6]]
    batches = iter(DataLoader(Faulty(*data(10).tensors), batch_sampler=drawn))
    numbers: Numbers = []
    while True:
        try:
            x, y = next(batches)
        except ValueError:
            continue
        except StopIteration:
            return [*numbers, *state(model)]
        parts.append(len(x))
        numbers.append(step_with(model, optimizer, x, y))


@CHECKS.on(2)
def worker_processes_load_the_parts() -> None:
    def workers(parts: list[int]) -> Numbers:
        torch.manual_seed(3)
        options: dict[str, Any] = {"num_workers": 2, "persistent_workers": True, "shuffle": True}
        return train(DataLoader(data(63), batch_size=5, **options), parts)

    assert_same(workers)


@CHECKS.on(2)
def a_loss_prints_as_that_of_the_whole_batch_and_checkpoints_may_be_reentrant() -> None:
    def checkpointed(parts: list[int]) -> Numbers:
        model = net(norm=False)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        numbers = []
        for x, y in DataLoader(data(23), batch_size=5):
            parts.append(len(x))
            optimizer.zero_grad()
            hidden = torch.utils.checkpoint.checkpoint(model[1:], model[0](x), use_reentrant=True)
            loss = (hidden - y).square().mean()
            loss.backward()
            optimizer.step()
            numbers.append(loss.item())
        return [*numbers, *state(model)]

    import torch.utils.checkpoint

    assert_same(checkpointed)


@CHECKS.on(2, 3)
def ranks_that_begin_apart_train_one_model() -> None:
    torch.manual_seed(pc.rank())
    np.random.seed(pc.rank())
    with applied():
        torch.seed()  # another seed on every rank, again
        model = nn.Sequential(nn.Linear(3, 6), nn.Dropout(), nn.Linear(6, 1)).double()
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(2):
            for x, y in DataLoader(data(23), batch_size=5, shuffle=True):
                step_with(model, optimizer, x, y)
    of_all = pc.allgather_object([each.tolist() for each in state(model)])
    assert all(each == of_all[0] for each in of_all)


@CHECKS.on(2)
def everything_is_put_back() -> None:
    import torch.distributed
    from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

    def places() -> list[object]:
        iterator = torch.utils.data.dataloader._BaseDataLoaderIter
        return [
            torch.save,
            torch.autograd.backward,
            torch.distributed.init_process_group,
            nn.functional.batch_norm,
            nn.Module.train,
            torch.jit.script,
            torch.jit.trace,
            *(vars(iterator)[name] for name in ("__init__", "_reset", "_next_index", "__next__")),
            torch.optim.Optimizer.__init__,
            torch.optim.Optimizer.add_param_group,
            len(_global_optimizer_pre_hooks),
            len(_global_optimizer_post_hooks),
        ]

    before = places()
    with applied():
        assert all(was != now for was, now in zip(before, places(), strict=True))
    assert places() == before


@CHECKS.on(2)
def rank_0_saves_and_the_others_wait_for_it() -> None:
    with contextlib.ExitStack() as end:
        mine = end.enter_context(tempfile.TemporaryDirectory()) if pc.rank() == 0 else ""
        saves_and_loads(Path(pc.broadcast_object(mine)))
        pc.barrier()


def saves_and_loads(folder: Path) -> None:
    with applied():
        for value in (1, 2):
            torch.save({"value": value, "rank": pc.rank()}, folder / "model.pt")
            assert torch.load(folder / "model.pt") == {"value": value, "rank": 0}
            pc.barrier()
        if pc.rank() == 0:
            torch.save(3, str(folder / "alone.pt"))
        torch.save(4, folder / f"at 12:00:0{pc.rank()}.pt")
        assert torch.load(folder / "at 12:00:00.pt") == 4
        with pytest.raises(RuntimeError, match="no_such"):
            torch.save(4, folder / "no_such" / "model.pt")
        with open(folder / f"{pc.rank()}.pt", "wb") as mine:
            torch.save(pc.rank(), mine)
        assert torch.load(folder / f"{pc.rank()}.pt") == pc.rank()


@pytest.mark.parametrize(("size", "name"), CHECKS.rows())
def test_on_every_rank(size: int, name: str) -> None:
    named_checks.assert_passed(__name__, size, name)


def test_in_a_world_of_one_nothing_is_replaced() -> None:
    pc.init()
    try:
        before = torch.save, torch.autograd.backward
        with applied():
            assert (torch.save, torch.autograd.backward) == before
    finally:
        pc.shutdown()
