"""pc.torch.DistributedOptimizer: any torch optimizer, with the gradients of all ranks."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from arrays import torch
from named_checks import Checks, assert_passed

import pycollective as pc

if torch is None:
    pytest.skip("torch is not installed", allow_module_level=True)

from fault_in_backward import Raises
from torch import nn

from pycollective.torch.optimizer import DistributedOptimizer

CHECKS = Checks()


def net(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    for parameter in model.parameters():
        parameter.data = torch.randint(-3, 4, parameter.shape).float()
    return model


def rows(rank: int, step: int) -> Any:
    return torch.randint(-3, 4, (2, 3), generator=torch.Generator().manual_seed(10 * step + rank)).float()


def alone(steps: list[list[int]], make: Callable[[Any], Any]) -> Any:
    """Returns the result of one process with all batches.

    Each inner list is one step of the optimizer.
    """
    model = net()
    optimizer = make(model.parameters())
    for passes in steps:
        optimizer.zero_grad()
        for step in passes:
            for rank in range(pc.size()):
                model(rows(rank, step)).sum().backward()
        optimizer.step()
    return model


def check(model: Any, steps: list[list[int]], make: Callable[[Any], Any]) -> None:
    for mine, theirs in zip(model.parameters(), alone(steps, make).parameters(), strict=True):
        assert torch.equal(mine, theirs)


def sgd(parameters: Any) -> Any:
    return torch.optim.SGD(parameters, lr=0.25, momentum=0.5)


@CHECKS.on(1)
def a_loss_is_no_closure() -> None:
    model = net()
    optimizer: Any = DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    loss = model(rows(0, 0)).sum()
    with pytest.raises(
        pc.InvalidArgument, match=r"not a Tensor: write loss\.backward\(\) and then optimizer\.step"
    ):
        optimizer.step(loss)
    with pytest.raises(AttributeError, match=r"write loss\.backward\(\), and optimizer\.step\(\)"):
        optimizer.backward(loss)
    loss.backward()
    optimizer.step()
    check(model, [[0]], sgd)


@CHECKS.on(1, 2, 3)
def every_step_is_that_of_one_process() -> None:
    torch.set_num_threads(1)
    rank, size = pc.rank(), pc.size()
    model = net(seed=rank)
    optimizer = DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), bucket_nbytes=64)
    assert isinstance(optimizer, torch.optim.SGD)
    assert type(optimizer).__name__ == "SGD"
    for step in (0, 1):
        optimizer.zero_grad()
        (model(rows(rank, step)).sum() * size).backward()
        with optimizer.skip_synchronize():  # as Horovod's programs do, though backward has reduced
            optimizer.synchronize()
            optimizer.step()
    check(model, [[0], [1]], sgd)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = model(rows(rank, 2)).sum() * size
        loss.backward()
        return loss

    assert optimizer.step(closure) is not None
    check(model, [[0], [1], [2]], sgd)


@CHECKS.on(1, 2, 3)
def passes_are_summed_up_and_reduced_in_the_last_one() -> None:
    rank = pc.rank()
    model = net()
    optimizer = DistributedOptimizer(
        sgd(model.parameters()), model.named_parameters(), op="sum", backward_passes_per_step=2
    )
    for passes in ([0, 1], [2, 3], [4]):  # the last step has fewer passes
        for step in passes:
            own = copy.deepcopy(model)
            model(rows(rank, step)).sum().backward()
            if step == 0:
                own(rows(rank, step)).sum().backward()
                assert torch.equal(own[0].weight.grad, model[0].weight.grad), "not reduced yet"
        optimizer.step()
        optimizer.zero_grad()
    check(model, [[0, 1], [2, 3], [4]], sgd)


@CHECKS.on(1, 2, 3)
def a_rank_without_any_gradient_reduces_too() -> None:
    rank, size = pc.rank(), pc.size()
    model = net()
    optimizer = DistributedOptimizer(sgd(model.parameters()))
    optimizer.zero_grad()
    if rank:
        (model(rows(rank, 0)).sum() * size).backward()
    optimizer.step()  # rank 0 also reduces here, without any gradient
    weights = pc.allgather(model[0].weight.detach()[None])
    assert (weights == weights[0]).all()


@CHECKS.on(1, 2, 3)
def the_state_of_rank_0_is_that_of_all_and_schedulers_and_scalers_work() -> None:
    rank = pc.rank()
    model = net()
    plain = torch.optim.AdamW(model.parameters(), lr=0.5 + rank)
    if rank == 0:  # as after a checkpoint that only rank 0 has read
        model(rows(0, 0)).sum().backward()
        plain.step()
        plain.zero_grad()
    optimizer = DistributedOptimizer(plain, model.named_parameters())
    state = optimizer.state_dict()
    assert state["param_groups"][0]["lr"] == 0.5
    assert sorted(state["state"]) == [0, 1, 2, 3]
    for each in state["state"].values():
        assert float(each["step"]) == 1
        assert (pc.allgather(each["exp_avg"][None]) == each["exp_avg"]).all()
    assert (pc.allgather(model[0].weight.detach()[None]) == model[0].weight).all()

    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for bad in (False, True):
        before = model[0].weight.detach().clone()
        optimizer.zero_grad()
        x = rows(rank, 1) * (float("nan") if bad and rank == pc.size() - 1 else 1)
        scaler.scale(model(x).sum()).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(before, model[0].weight) == bad
        scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.125
    assert scaler.get_scale() == 2.0
    optimizer.load_state_dict(state)
    assert optimizer.param_groups[0]["lr"] == 0.5
    weights = pc.allgather(model[0].weight.detach()[None])
    assert (weights == weights[0]).all()


@CHECKS.on(1, 2, 3)
def hooks_of_step_run_once() -> None:
    model = net()
    optimizer = DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    called: list[str] = []
    optimizer.register_step_pre_hook(lambda *_: called.append("before"))
    optimizer.register_step_post_hook(lambda *_: called.append("after"))
    for _ in range(2):
        optimizer.load_state_dict(optimizer.state_dict())
        model(rows(0, 0)).sum().backward()
        optimizer.step()
        assert called == ["before", "after"]
        called.clear()


@CHECKS.on(1, 2, 3)
def scalers_after_fewer_passes_want_synchronize() -> None:
    model = net()
    optimizer = DistributedOptimizer(
        sgd(model.parameters()), model.named_parameters(), backward_passes_per_step=2
    )
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for bad in (True, False):  # one pass per step, which is one too few
        x = rows(pc.rank(), 0) * (float("inf") if bad and pc.rank() == 0 else 1)
        scaler.scale(model(x).sum() * pc.size()).backward()
        optimizer.synchronize()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    assert scaler.get_scale() == 2.0
    check(model, [[0]], sgd)


@CHECKS.on(1, 2, 3)
def no_sum_is_reduced_twice() -> None:
    model = net()
    optimizer = DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), op="sum")

    def backward() -> None:
        model(rows(pc.rank(), 0)).sum().backward()

    backward()
    with pytest.raises(pc.InvalidArgument, match="reduce it twice"):
        backward()
    for set_to_none in (False, True):
        optimizer.zero_grad(set_to_none=set_to_none)
        backward()
    optimizer.step()
    check(model, [[0]], sgd)
    with pytest.raises(pc.InvalidArgument, match="reduce it twice"):
        optimizer.step()
    optimizer.zero_grad()
    backward()


@CHECKS.on(1, 2, 3)
def a_step_is_given_up_and_the_next_one_works() -> None:
    model = net()
    optimizer = DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    if pc.rank() == pc.size() - 1:
        optimizer.reset()  # after an exception in forward
    else:
        with pytest.raises(pc.CollectiveMismatch, match="given this step up"):
            model(rows(pc.rank(), 0)).sum().backward()
    optimizer.zero_grad()
    (model(rows(pc.rank(), 0)).sum() * pc.size()).backward()
    optimizer.step()
    check(model, [[0]], sgd)


@CHECKS.on(1, 2, 3)
def closed_it_is_the_optimizer_that_it_was() -> None:
    model = net()
    plain = sgd(model.parameters())
    optimizer = DistributedOptimizer(plain, model.named_parameters())
    optimizer.close()
    assert type(plain) is torch.optim.SGD
    assert not any(each._post_accumulate_grad_hooks for each in model.parameters())
    (model(rows(pc.rank(), 0)).sum()).backward()
    plain.step()
    again = DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    weights = pc.allgather(model[0].weight.detach()[None])
    assert (weights == weights[0]).all()
    again.close()


@CHECKS.on(1, 2, 3)
def each_refusal_leaves_an_optimizer_that_goes_on() -> None:
    rank, size = pc.rank(), pc.size()
    model = net()
    scheduled = sgd(model.parameters())
    torch.optim.lr_scheduler.StepLR(scheduled, 1)
    rows_of_refusals: list[tuple[Callable[[], Any], type[Exception], str]] = [
        (lambda: DistributedOptimizer(scheduled), pc.InvalidArgument, "schedulers"),
        (
            lambda: DistributedOptimizer(sgd(model.parameters()), model[0].named_parameters()),
            pc.InvalidArgument,
            "2 of 4 parameters",
        ),
        (
            lambda: DistributedOptimizer(sgd(model.parameters()), backward_passes_per_step=0),
            pc.InvalidArgument,
            "at least 1",
        ),
        (lambda: DistributedOptimizer(torch.optim.LBFGS(model.parameters())), pc.Unsupported, "LBFGS"),
    ]
    optimizer = DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), bucket_nbytes=16)
    rows_of_refusals += [
        (lambda: DistributedOptimizer(optimizer), pc.InvalidArgument, "already"),
        (lambda: copy.deepcopy(optimizer), pc.InvalidArgument, "state_dict"),
    ]
    for call, kind, why in rows_of_refusals:
        with pytest.raises(kind, match=why):
            call()
    if rank == size - 1:
        with pytest.raises(KeyError):
            model[2](Raises.apply(model[0](rows(rank, 0)))).sum().backward()
        with pytest.raises(pc.InvalidArgument, match="the last backward raised"):
            optimizer.step()
    else:
        with pytest.raises(pc.CollectiveMismatch, match="given this step up"):
            model(rows(rank, 0)).sum().backward()
    optimizer.zero_grad()
    (model(rows(rank, 0)).sum() * size).backward()
    optimizer.step()
    check(model, [[0]], sgd)
    rows_of_refusals.clear()
    call = optimizer = None  # the failure also held them
    assert not any(each._post_accumulate_grad_hooks for each in model.parameters()), "no hook stays"


@CHECKS.on(1, 2, 3)
def a_group_of_parameters_that_comes_later_is_reduced_too() -> None:
    model, head = net(), nn.Linear(2, 2)
    model[0].requires_grad_(False)
    nn.init.constant_(head.weight, 1.0 + pc.rank())
    named = [*model.named_parameters(), *head.named_parameters(prefix="head")]
    optimizer = DistributedOptimizer(sgd(model[2].parameters()), named)
    head(model(rows(pc.rank(), 0))).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    head.zero_grad()
    model[0].requires_grad_(True)
    optimizer.add_param_group({"params": model[0].parameters(), "lr": 0.5 + pc.rank()})
    optimizer.add_param_group({"params": head.parameters()})
    assert [group["lr"] for group in optimizer.param_groups] == [0.25, 0.5, 0.25]
    everything = [*model.parameters(), *head.parameters()]
    assert head.weight.detach().eq(1).all(), "those of rank 0"
    head(model(rows(pc.rank(), 1))).sum().backward()
    mine = [each.grad.clone() for each in everything]
    expected = []
    for rank in range(pc.size()):
        expected.append(torch.autograd.grad(head(model(rows(rank, 1))).sum(), everything))
    for gradient, of_ranks in zip(mine, zip(*expected, strict=True), strict=True):
        assert torch.allclose(gradient, sum(of_ranks) / pc.size())
    optimizer.step()
    assert (
        pc.allgather_object([each.tolist() for each in everything])
        == [[each.tolist() for each in everything]] * pc.size()
    )
    optimizer.close()


class WithBackward(torch.optim.SGD):
    def backward(self, loss: Any) -> None:
        loss.backward()


@CHECKS.on(2)
def a_method_of_the_optimizers_own_stays() -> None:
    model = net()
    optimizer = DistributedOptimizer(WithBackward(model.parameters(), lr=0.5))
    assert type(optimizer).backward is WithBackward.backward
    optimizer.backward(model(rows(pc.rank(), 0)).sum())
    mine = [each.grad.clone() for each in model.parameters()]
    of_ranks = [
        torch.autograd.grad(model(rows(rank, 0)).sum(), [*model.parameters()]) for rank in range(pc.size())
    ]
    for gradient, expected in zip(mine, zip(*of_ranks, strict=True), strict=True):
        assert torch.allclose(gradient, sum(expected) / pc.size())
    optimizer.step()
    optimizer.close()


@CHECKS.on(1)
def an_optimizer_has_what_it_lists_and_nothing_else() -> None:
    optimizer = DistributedOptimizer(sgd(net().parameters()))
    assert all(hasattr(optimizer, name) for name in dir(optimizer))
    assert "backward" not in dir(optimizer)
    with pytest.raises(AttributeError, match="no attribute 'forward'$"):
        optimizer.forward  # noqa: B018
    optimizer.close()


@CHECKS.on(2)
def a_group_that_cannot_be_added_leaves_the_optimizer_as_it_was() -> None:
    model, rank = net(), pc.rank()
    optimizer = DistributedOptimizer(sgd(model.parameters()), backward_passes_per_step=2)
    with pytest.raises(pc.CollectiveMismatch):
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2 + rank))]})
    with pytest.raises((pc.InvalidArgument, pc.Aborted, pc.CollectiveMismatch)):
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2))], "of no use": open})
    with pytest.raises(ValueError, match="more than one parameter group"):
        optimizer.add_param_group({"params": [model[0].weight]})
    assert all(len(each._post_accumulate_grad_hooks) == 1 for each in model.parameters())
    model(rows(rank, 0)).sum().backward()
    with pytest.raises(pc.InvalidArgument, match="between steps"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2))]})
    model(rows(rank, 1)).sum().backward()
    optimizer.step()
    assert len(optimizer.param_groups) == 1
    check_equal = pc.allgather_object([each.tolist() for each in model.parameters()])
    assert check_equal[0] == check_equal[1]
    summed = DistributedOptimizer(sgd(net().parameters()), op="sum")
    net_of = summed.param_groups[0]["params"]
    net_of[0].grad = torch.ones_like(net_of[0])
    with pytest.raises(pc.InvalidArgument, match="zero_grad"):
        summed.add_param_group({"params": [nn.Parameter(torch.ones(2))]})


@pytest.mark.parametrize(("size", "name"), CHECKS.rows())
def test_on_every_rank(size: int, name: str) -> None:
    assert_passed(__name__, size, name)
