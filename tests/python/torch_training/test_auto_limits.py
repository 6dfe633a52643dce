"""pycollective.torch.auto: a batch that it cannot make parallel stays whole.

Programs that it does not support are refused.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
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
    DataLoader,
)

from pycollective.torch.auto import applied

CHECKS = named_checks.Checks()
pytestmark = pytest.mark.timeout(240)  # the first test of each kind waits for all launches


# Where it is unknown which batch a loss belongs to, batches stay whole: right, and no faster.


def ahead(loader: Any) -> Iterator[Any]:
    """A prefetcher: it takes one batch more than it uses."""
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


# What it does not support.


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
    # as long as a part of a batch
    penalized = torch.full((2, 2), 0.5, dtype=torch.float64, requires_grad=True)
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


@pytest.mark.parametrize(("size", "name"), CHECKS.rows())
def test_on_every_rank(size: int, name: str) -> None:
    named_checks.assert_passed(__name__, size, name)
