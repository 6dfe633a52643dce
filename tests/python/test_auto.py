"""`python -m pycollective.torch.auto`: a script of one process gives the same numbers on any number of ranks.

Every check trains twice: alone, with torch as it is, and in applied(); all numbers must agree.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
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
SCRIPTS = Path(__file__).with_name("auto_scripts")
Numbers = list[Any]
pytestmark = pytest.mark.timeout(240)  # the first test of each kind waits for all launches


def data(count: int) -> TensorDataset:
    inputs = torch.linspace(-1, 1, count * 3, dtype=torch.float64).reshape(count, 3).sin()
    return TensorDataset(inputs, (inputs.sum(1, keepdim=True) * 2).cos())


def net(*, norm: bool = True) -> nn.Sequential:
    torch.manual_seed(5)
    middle: list[nn.Module] = [nn.BatchNorm1d(6)] if norm else []
    return nn.Sequential(nn.Linear(3, 6, bias=not norm), *middle, nn.Tanh(), nn.Linear(6, 1)).double()


def state(model: nn.Module) -> Numbers:
    return [each.detach().double().numpy().copy() for each in model.state_dict().values()]


def step_with(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor) -> float:
    optimizer.zero_grad()
    loss = (model(x) - y).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


def accuracy(model: nn.Module, loader: DataLoader[Any]) -> float:
    """As people write it: gradients are off inside the loop only."""
    correct = 0
    model.eval()
    for x, y in loader:
        with torch.no_grad():
            correct += int(((model(x) > 0) == (y > 0)).sum())
    model.train()
    return correct / len(loader.dataset)  # type: ignore[arg-type]


def train(loader: DataLoader[Any], parts: list[int], epochs: int = 2, *, evaluated: bool = False) -> Numbers:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    numbers: Numbers = []
    for _ in range(epochs):
        for step, (x, y) in enumerate(loader):
            parts.append(len(x))
            if evaluated and step == 2:  # a loop in the loop, between a batch and what is done with it
                numbers.append(accuracy(model, DataLoader(data(9), batch_size=4)))
            numbers.append(step_with(model, optimizer, x, y))
        numbers.append(accuracy(model, loader))
    return [*numbers, *state(model)]


def trainer(function: Callable[[list[int]], Numbers]) -> Callable[[list[int]], Numbers]:
    """It is given a list for the sizes of the batches that it sees, and must compute the same alone."""
    CHECKS.add(function.__name__, lambda: assert_same(function), 2, 3)
    return function


def assert_same(
    function: Callable[[list[int]], Numbers], *, cut: bool = True, tolerance: float = 1e-11
) -> None:
    sizes: list[int] = []
    alone_sizes: list[int] = []
    alone = function(alone_sizes)
    with applied():
        together = function(sizes)
    assert len(alone) == len(together) > 0
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_allclose(other, one, rtol=tolerance, atol=tolerance)
    if cut:
        assert sum(sizes) < sum(alone_sizes)
        everywhere = pc.allreduce(np.array([sizes, [1] * len(sizes)]))[0]
        whole = [size for size, total in zip(alone_sizes, everywhere, strict=True) if size != total]
        assert len(whole) < len(sizes) / 2  # the first batch, and those smaller than the world
    else:
        assert sizes == alone_sizes


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
        weighted = loss * weight  # which keeps the loss
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


# Where it cannot be told which batch a loss is of, batches stay whole: right, and no faster.


def ahead(loader: Any) -> Iterator[Any]:
    """A prefetcher: one batch more is taken than is used."""
    iterator = iter(loader)
    now = next(iterator)
    for then in iterator:
        yield now
        now = then
    yield now


def whole(batches: Callable[[], Any]) -> Callable[[list[int]], Numbers]:
    def run(parts: list[int]) -> Numbers:
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        numbers = []
        for _ in range(2):
            for x, y in batches():
                parts.append(len(x))
                numbers.append(step_with(model, optimizer, x, y))
        return [*numbers, *state(model)]

    return run


@CHECKS.on(2, 3)
def what_cannot_be_cut_stays_whole() -> None:
    small, large = (DataLoader(data(12), batch_size=size) for size in (2, 5))
    assert_same(whole(lambda: ahead(large)), cut=False)
    assert_same(whole(lambda: list(large)), cut=False)
    if pc.size() == 3:
        with warnings.catch_warnings(record=True) as caught:
            assert_same(whole(lambda: small), cut=False)
        assert len(caught) == (pc.rank() == 0)
        assert all("whole batches" in str(each.message) for each in caught)


@CHECKS.on(2)
def batches_that_are_used_again_are_alike_or_refused() -> None:
    def cycled(loader: DataLoader[Any]) -> Numbers:
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in loader:
            step_with(model, optimizer, x, y)
        return [step_with(model, optimizer, x, y) for x, y in itertools.islice(itertools.cycle(loader), 8)]

    alone = cycled(DataLoader(data(24), batch_size=6))
    with applied():
        np.testing.assert_allclose(cycled(DataLoader(data(24), batch_size=6)), alone, rtol=1e-11)
        with pytest.raises(pc.InvalidArgument, match="batches are kept"):
            cycled(DataLoader(data(23), batch_size=6))


# What it cannot stand for.


@CHECKS.on(2)
def a_loop_that_is_cut_and_does_not_train_is_refused() -> None:
    with applied():
        loader = DataLoader(data(12), batch_size=4)
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in loader:
            step_with(model, optimizer, x, y)
        with torch.no_grad():
            assert [len(x) for x, _ in loader] == [4, 4, 4]
        with pytest.raises(pc.InvalidArgument, match="does not train"):
            list(itertools.islice(loader, 2))
        assert model.eval() is model
        assert [len(x) for x, _ in loader] == [4, 4, 4]


@CHECKS.on(2)
def a_loop_that_takes_parts_for_short_batches_is_refused() -> None:
    def skipping() -> None:
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in DataLoader(data(23), batch_size=6):
            if len(x) == 6:
                step_with(model, optimizer, x, y)

    with applied(), pytest.raises(pc.InvalidArgument, match="does not train"):
        skipping()


@CHECKS.on(2)
def parts_that_were_loaded_ahead_are_not_evaluated() -> None:
    with applied():
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = DataLoader(data(48), batch_size=4, num_workers=1)
        for x, y in loader:
            step_with(model, optimizer, x, y)
        batches = iter(loader)
        step_with(model, optimizer, *next(batches))
        with torch.no_grad(), pytest.raises(pc.InvalidArgument, match="of a part"):
            next(batches)


def one_loss(
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    *,
    backward: Callable[[torch.Tensor], None] = torch.Tensor.backward,
    **options: Any,
) -> Numbers:
    def run() -> Numbers:
        model = net(norm=False)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        numbers = []
        for x, y in DataLoader(data(10), batch_size=5):
            optimizer.zero_grad()
            value = loss(model(x), y)
            backward(value)
            optimizer.step()
            numbers.append(value.sum().item())
        return [*numbers, *state(model)]

    alone = run()
    with applied(**options):
        together = run()
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-11)
    return together


@CHECKS.on(2)
def sums_are_refused_unless_they_are_announced() -> None:
    mse = nn.functional.mse_loss
    by_hand = lambda x, y: 0.5 * (x - y).square().sum()  # noqa: E731
    asked = lambda x, y: mse(x, y, reduction="sum") + 0.01 * x.square().mean() * 0  # noqa: E731
    beside_a_mean = lambda x, y: mse(x, y) + 0.1 * x.exp().sum()  # noqa: E731
    for sums in (by_hand, asked):
        with pytest.raises(pc.InvalidArgument, match="is a sum over the samples"):
            one_loss(sums)
        one_loss(sums, reduction="sum")
    with pytest.raises(pc.InvalidArgument, match="is a sum over the samples"):
        one_loss(beside_a_mean)
    with pytest.raises(pc.InvalidArgument, match="is a sum over the samples"):
        one_loss(lambda x, y: (x - y).square(), backward=lambda loss: loss.backward(torch.ones_like(loss)))
    one_loss(lambda x, y: (x - y).square().sum() / len(x))
    penalized = torch.full((2, 2), 0.5, dtype=torch.float64, requires_grad=True)  # as long as a part
    one_loss(lambda x, y: mse(x, y) + penalized.square().sum() + (penalized * penalized).sum())
    one_loss(lambda x, y: mse(x, y) + 0.5 * mse(x, -y))


@CHECKS.on(2)
def sums_over_parts_and_over_whole_batches_do_not_mix() -> None:
    with applied(reduction="sum"):
        model = net(norm=False)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        pairs = zip(DataLoader(data(8), batch_size=4), DataLoader(data(2), batch_size=1), strict=True)
        (x, y), (u, v) = next(pairs)
        step_with(model, optimizer, torch.cat([x, u]), torch.cat([y, v]))
        (x, y), (u, v) = next(pairs)
        with pytest.raises(pc.InvalidArgument, match="parts of batches and whole ones"):
            step_with(model, optimizer, torch.cat([x, u]), torch.cat([y, v]))


@CHECKS.on(2)
def what_it_cannot_stand_for_is_refused_by_name() -> None:
    import torch.distributed

    with pytest.raises(pc.InvalidArgument, match="means or sums"), applied(reduction="max"):  # type: ignore[arg-type]
        pass
    with applied():
        model = net()
        with pytest.raises(pc.Unsupported, match="LBFGS"):
            torch.optim.LBFGS(model.parameters())
        with pytest.raises(pc.InvalidArgument, match="distributed already"):
            torch.distributed.init_process_group("gloo")
        with pytest.raises(pc.Unsupported, match="compile it in eval"):
            torch.jit.script(model)
        torch.jit.script(model.eval())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer.step()  # no gradient, nothing to do
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        with pytest.raises(
            pc.InvalidArgument, match="parameter 0 of a SGD has a gradient that is not of all ranks"
        ):
            optimizer.step()


def diverging(setting: bool) -> None:
    with applied():
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step, (x, y) in enumerate(DataLoader(data(24), batch_size=4)):
            step_with(model, optimizer, x, y)
            if step == 1 and pc.rank() == 1:
                if setting:
                    optimizer.param_groups[0]["lr"] = 0.2
                else:
                    for parameter in model.parameters():
                        parameter.data += 0.1


@CHECKS.on(2)
def ranks_that_come_apart_raise_on_all() -> None:
    with pytest.raises(pc.CollectiveMismatch, match="rank 1 has other settings of optimizers than rank 0"):
        diverging(True)
    with pytest.raises(pc.CollectiveMismatch, match="rank 1 has other parameters than rank 0"):
        diverging(False)
    own_order = [[0, 1, 2, 3], [4, 5, 6, 7]][:: 1 - 2 * pc.rank()]
    with applied(), pytest.raises(pc.CollectiveMismatch, match="rank 1 has other batches than rank 0"):
        train(DataLoader(data(8), batch_sampler=own_order), [])


def stopping(norm: bool) -> None:
    with applied():
        model = net(norm=norm)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step, (x, y) in enumerate(DataLoader(data(24), batch_size=4)):
            if step == 3 and pc.rank() == 1:
                break
            step_with(model, optimizer, x, y)


@CHECKS.on(2)
def a_rank_that_stops_early_does_not_keep_the_others_waiting() -> None:
    for norm in (True, False):
        with pytest.raises(pc.CollectiveMismatch, match="barrier"):
            stopping(norm)


@CHECKS.on(2, 3)
def ranks_that_begin_apart_train_one_model() -> None:
    torch.manual_seed(pc.rank())
    np.random.seed(pc.rank())
    with applied():
        torch.seed()  # another on every rank, again
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


# Whole scripts.

SAYS_WHAT_IT_IS = """
import json, sys
import pycollective as pc
assert pc.init() is pc.world()
print(json.dumps([__name__, __file__, sys.argv[1:], sys.path[0], sys.modules["__main__"].__dict__ is globals()]))
sys.exit(int(sys.argv[1]))
"""


@pytest.mark.parametrize("module", [False, True])
def test_a_program_finds_what_it_finds_under_python(
    module: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pycollective.torch.auto import script

    path = tmp_path / "says_what_it_is.py"
    path.write_text(SAYS_WHAT_IT_IS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path) if module else "/elsewhere", *sys.path])
    monkeypatch.setattr(sys, "argv", [])
    program = ["-m", path.stem] if module else [path.name]
    try:
        script.main([*program, "0", "--reduction", "-m"])
        assert not pc.is_initialized()
        with pytest.raises(SystemExit, match="3"):
            script.main([*program, "3"])
    finally:
        pc.shutdown()
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert said[0] == ["__main__", str(path), ["0", "--reduction", "-m"], str(tmp_path), True]
    assert [each[2] for each in said] == [["0", "--reduction", "-m"], ["3"]]


NUMBER = re.compile(r"\d+\.\d+")


def launched(ranks: int, script: str, folder: Path, launcher: launchers.Launcher) -> str:
    folder.mkdir()
    what = ["-m", "pycollective.torch.auto", str(SCRIPTS / script), str(folder)]
    return output(launcher.start(ranks, what)[0])


def output(command: launchers.Command) -> str:
    env = {**os.environ, **command.env, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command.words, env=env, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def plain(script: str, folder: Path) -> str:
    folder.mkdir()
    return output(launchers.Command([sys.executable, str(SCRIPTS / script), str(folder)]))


OURS = next(each for each in launchers.LAUNCHERS if each.name == "pycollective")
MPIRUN = next(
    (
        each
        for each in launchers.LAUNCHERS
        if "mpi" in each.name and each.hosts == 1 and each.missing() is None
    ),
    OURS,
)


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("scripts")
    with ThreadPoolExecutor(2) as pool:
        runs = {
            "digits 4": pool.submit(launched, 4, "digits.py", folder / "d4", OURS),
            "digits 2": pool.submit(launched, 2, "digits.py", folder / "d2", OURS),
            "digits 1": pool.submit(launched, 1, "digits.py", folder / "d1", OURS),
            "digits": pool.submit(plain, "digits.py", folder / "d0"),
            "curve": pool.submit(plain, "curve.py", folder / "c0"),
            "curve 2": pool.submit(launched, 2, "curve.py", folder / "c2", MPIRUN),
        }
        return {"folder": str(folder), **{name: run.result() for name, run in runs.items()}}


def test_with_one_rank_a_script_prints_what_it_prints_alone(printed: dict[str, str]) -> None:
    assert printed["digits 1"] == printed["digits"]
    models = [Path(printed["folder"], folder, "model.pt").read_bytes() for folder in ("d0", "d1")]
    assert models[0] == models[1]


@pytest.mark.parametrize("run", ["digits 2", "digits 4", "curve 2"])
def test_a_script_that_nobody_touched_has_the_same_loss_curve_on_any_number_of_ranks(
    run: str, printed: dict[str, str]
) -> None:
    alone, together = (NUMBER.findall(printed[name]) for name in (run.split()[0], run))
    assert len(alone) > 20
    np.testing.assert_allclose(np.array(together, float), np.array(alone, float), rtol=1e-6)


def test_rank_0_saves_the_model_that_training_alone_gives(printed: dict[str, str]) -> None:
    models = [torch.load(Path(printed["folder"], folder, "model.pt")) for folder in ("d0", "d2", "d4")]
    for model in models[1:]:
        for name, values in models[0].items():
            torch.testing.assert_close(model[name], values, rtol=1e-8, atol=1e-10)


def test_an_exception_on_one_rank_ends_all(tmp_path: Path) -> None:
    command = OURS.start(2, ["-m", "pycollective.torch.auto", str(SCRIPTS / "one_fails.py")])[0]
    done = subprocess.run(command.words, capture_output=True, text=True, timeout=110)  # and not after 600 s
    assert done.returncode == 1
    assert "RuntimeError: no more" in done.stderr
