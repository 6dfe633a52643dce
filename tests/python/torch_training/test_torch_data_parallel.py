"""pc.torch.DataParallel: bit for bit the gradients that one process has with all batches."""

from __future__ import annotations

import copy
import gc
import pickle
from collections.abc import Iterable
from typing import Any

import pytest
from arrays import torch
from named_checks import Checks, assert_passed

import pycollective as pc

if torch is None:
    pytest.skip("torch is not installed", allow_module_level=True)

from torch import nn
from torch.utils.checkpoint import checkpoint

from pycollective.torch.data_parallel import DataParallel

CHECKS = Checks()
SMALL = {"bucket_nbytes": 100, "first_bucket_nbytes": 20}  # several buckets for the models here


def integers(*shape: int, seed: int, dtype: Any = None) -> Any:
    """Small numbers, so that sums of their products are exact in float32 in any order."""
    values = torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(seed))
    return values.to(dtype or torch.float32)


class Model(nn.Module):
    """A model with an optional branch, tied weights, a layer used twice, and a frozen one."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.first = nn.Linear(4, 6)
        self.left = nn.Linear(6, 6)
        self.right = nn.Linear(6, 6)
        self.never = nn.Linear(2, 2)
        self.last = nn.Linear(6, 3, bias=False)
        self.tied = nn.Linear(6, 3)
        self.tied.weight = self.last.weight
        self.frozen = nn.Linear(6, 6)
        self.frozen.requires_grad_(False)
        for number, parameter in enumerate(self.parameters()):
            parameter.data = integers(*parameter.shape, seed=seed + number)

    def forward(self, x: Any, branch: str = "left") -> Any:
        x = self.frozen(torch.relu(self.first(x)))
        x = getattr(self, branch)(getattr(self, branch)(x))
        return self.last(x) + self.tied(x)


def batch(rank: int, step: int) -> Any:
    """Returns a batch with a different size on each rank.

    The last rank of three and more has no samples.
    """
    count = 0 if rank == 2 else rank + 1
    return integers(count, 4, seed=100 * rank + step)


def reference(steps: Iterable[tuple[int, str]], ranks: int) -> dict[str, Any]:
    """Returns the gradients of one process that has all the batches."""
    model = Model(seed=0)
    for step, branch in steps:
        for rank in range(ranks):
            model(batch(rank, step), branch).sum().backward()
    return {name: each.grad for name, each in model.named_parameters()}


def loss(model: Any, step: int, branch: str = "left") -> Any:
    return model(batch(pc.rank(), step), branch).sum() * pc.size()


def check(model: DataParallel, steps: Iterable[tuple[int, str]]) -> None:
    expected = reference(steps, pc.size())
    for name, parameter in model.module.named_parameters():
        if not parameter.requires_grad:
            assert parameter.grad is None, name
        elif expected[name] is None:
            assert parameter.grad is None, f"{name} is not used"
        else:
            assert torch.equal(parameter.grad, expected[name]), name


@CHECKS.on(1, 2, 3, 4)
def gradients_are_those_of_one_process_and_views_of_buckets() -> None:
    torch.set_num_threads(1)
    model = DataParallel(Model(seed=pc.rank()), **SMALL)
    buckets = model._hooks._reducer.buckets
    assert len(buckets) > 4
    assert sum("weight" in name for bucket in buckets for name in bucket) == 5, (
        "tied weights once, no frozen one"
    )
    loss(model, 0).backward()
    check(model, [(0, "left")])
    views = {name: each.grad for name, each in model.module.named_parameters()}
    assert all(model._hooks._reducer.view(name) is view for name, view in views.items() if view is not None)
    for set_to_none in (True, False):
        model.zero_grad(set_to_none=set_to_none)
        loss(model, 1, "right").backward()
        check(model, [(1, "right")])


@CHECKS.on(1, 2, 3, 4)
def no_sync_accumulates_and_may_be_nested() -> None:
    model = DataParallel(Model(seed=0), **SMALL)
    with model.no_sync():
        loss(model, 2).backward()
        with model.no_sync():
            loss(model, 3, "right").backward()
        loss(model, 4, "right").backward()
    own = model.module.right.weight.grad.clone()
    loss(model, 5).backward()  # the gradient of `right` was computed in no_sync() only
    check(model, [(2, "left"), (3, "right"), (4, "right"), (5, "left")])
    assert pc.size() == 1 or not torch.equal(own, model.module.right.weight.grad)


@CHECKS.on(1, 2, 3, 4)
def losses_of_one_step_may_follow_each_other() -> None:
    model = DataParallel(Model(seed=0), **SMALL)
    for step in (6, 7):  # each averaged: the mean of a mean is the mean
        loss(model, step).backward()
    check(model, [(6, "left"), (7, "left")])


@CHECKS.on(1, 2, 3, 4)
def ranks_may_differ_in_what_they_use() -> None:
    model = DataParallel(Model(seed=0), **SMALL)
    branch = "left" if pc.rank() else "right"  # each rank has another unused branch
    loss(model, 0, branch).backward()
    expected = Model(seed=0)
    for rank in range(pc.size()):
        expected(batch(rank, 0), "left" if rank else "right").sum().backward()
    for name in ("left", "right"):
        theirs = getattr(expected, name).weight.grad
        mine = getattr(model.module, name).weight.grad
        assert mine is None if theirs is None else torch.equal(mine, theirs), name


@CHECKS.on(1, 2, 3, 4)
def what_no_rank_uses_keeps_no_gradient_and_is_not_moved() -> None:
    model = DataParallel(Model(seed=0), **SMALL)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, weight_decay=0.5)
    before = model.module.right.weight.clone()
    for _ in range(2):
        optimizer.zero_grad()
        loss(model, 0, "left").backward()
        assert model.module.right.weight.grad is None
        optimizer.step()
    assert torch.equal(model.module.right.weight, before)
    if pc.rank() == pc.size() - 1:  # on one rank alone
        loss(model, 0, "right").backward()
    else:
        model.synchronize()
    assert model.module.right.weight.grad is not None


@CHECKS.on(1, 2, 3)
def what_is_ignored_stays_each_ranks_own() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    module.register_buffer("mask", torch.tensor([float(pc.rank())]))
    nn.init.constant_(module[0].bias, float(pc.rank()))
    with pytest.raises(pc.InvalidArgument, match='no parameter or buffer "maks": did you mean "mask"'):
        DataParallel(module, ignore=["maks"])
    model = DataParallel(module, ignore=["mask", "0.bias"])
    module[0].bias.requires_grad_(pc.rank() == 0)
    model(torch.tensor([[1.0, 2.0], [3.0, 5.0]])).sum().backward()
    assert module.mask == pc.rank()
    assert (module[0].bias == pc.rank()).all()
    assert (module[0].bias.grad is not None) == (pc.rank() == 0)
    weights = pc.allgather_object(module[0].weight.tolist())
    assert all(each == weights[0] for each in weights)


@CHECKS.on(1, 2, 3, 4)
def a_rank_with_a_loss_that_needs_no_parameter_synchronizes() -> None:
    model = DataParallel(Model(seed=0), **SMALL)
    if pc.rank() == 0:
        model.synchronize()
    else:
        loss(model, 1).backward()
    expected = (
        reference([(1, "left")], pc.size())["first.weight"] - reference([(1, "left")], 1)["first.weight"]
    )
    if pc.size() == 1:
        assert model.module.first.weight.grad is None
    else:
        assert torch.equal(model.module.first.weight.grad, expected)


@CHECKS.on(1, 2, 3, 4)
def random_float64_gradients_are_those_of_one_process() -> None:
    torch.manual_seed(0)
    rounded = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 2)).double()
    rows = torch.randn(pc.size(), 3, 5, dtype=torch.float64)
    alone = copy.deepcopy(rounded)
    (alone(rows).square().sum() / pc.size()).backward()
    together = DataParallel(rounded, **SMALL)
    together(rows[pc.rank()]).square().sum().backward()
    for mine, theirs in zip(rounded.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-12, atol=1e-12)


@CHECKS.on(1, 2, 3, 4)
def two_models_of_one_loss_do_not_wait_for_each_other() -> None:
    """Their first gradients are ready in another order on each rank, with an unused layer each."""
    models = [
        DataParallel(nn.ModuleList([nn.Linear(2, 2) for _ in range(3)]), **SMALL, timeout=10) for _ in "ab"
    ]
    x = torch.ones(1, 2)
    for model in models if pc.rank() % 2 else models[::-1]:
        x = model.module[2](model.module[0](x))
    x.sum().backward()
    for model in models:
        assert model.module[1].weight.grad is None
        same = pc.allgather(model.module[0].weight.grad[None])
        assert all(torch.equal(each, same[0]) for each in same)


@CHECKS.on(1, 2, 3, 4)
def a_gradient_that_shares_memory_is_not_written() -> None:
    """Autograd may share one block between a parameter and the graph, so it is not written."""
    rank, size, wide = pc.rank(), pc.size(), 300

    class Added(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.low = nn.Parameter(integers(wide, 2, seed=1))
            self.high = nn.Parameter(integers(2, wide, seed=2))
            self.delta = nn.Parameter(integers(wide * wide, seed=3))

        def forward(self, x: Any) -> Any:
            return x @ (self.low @ self.high + self.delta.view(wide, wide))

    def gradient(rank: int) -> Any:
        return integers(1, wide, seed=20 + rank)

    model, alone = DataParallel(Added()), Added()
    for _ in range(2):
        model.zero_grad()
        model(integers(1, wide, seed=10 + rank)).backward(gradient(rank) * size)
    for other in range(size):
        alone(integers(1, wide, seed=10 + other)).backward(gradient(other))
    for mine, theirs in zip(model.module.parameters(), alone.parameters(), strict=True):
        assert torch.equal(mine.grad, theirs.grad)
    given = torch.full((wide * wide,), float(rank))
    model.zero_grad()
    model.module.delta.view(-1).backward(given)
    assert (given == rank).all(), "the program's own"


@CHECKS.on(1, 2, 3, 4)
def a_gradient_has_the_memory_layout_of_its_parameter() -> None:
    """Fused optimizers use the memory layout of the gradient."""
    torch.manual_seed(0)
    convolution = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    alone = copy.deepcopy(convolution)
    model = DataParallel(convolution)
    x = torch.randint(-3, 4, (2, 3, 5, 5)).float()
    for trained in (model, alone):
        optimizer = torch.optim.SGD(trained.parameters(), lr=2**-6, fused=True)
        for _ in range(2):
            optimizer.zero_grad()
            trained(x).sum().backward()
            assert all(each.grad.stride() == each.stride() for each in trained.parameters())
            optimizer.step()
    assert torch.equal(convolution.weight, alone.weight)
    if pc.size() > 1:
        kind = torch.channels_last if pc.rank() else torch.contiguous_format
        with pytest.raises(pc.CollectiveMismatch, match=r"axes \(0, 2, 3, 1\) in memory"):
            DataParallel(nn.Conv2d(3, 4, 3).to(memory_format=kind))


@CHECKS.on(1, 2, 3, 4)
def what_raises_in_the_middle_of_synchronize_is_done_again() -> None:
    model = DataParallel(nn.ModuleList([nn.Linear(2, 2, bias=False) for _ in range(2)]), **SMALL)
    first, last = model.module
    first.weight.grad = torch.ones(2, 2, requires_grad=True) * 1
    last.weight.grad = torch.full((2, 2), float(pc.rank()))
    with pytest.raises(pc.Unsupported, match="create_graph"):
        model.synchronize()
    first.weight.grad = torch.full((2, 2), float(pc.rank()))
    model.synchronize()
    for each in model.module:
        assert torch.equal(each.weight.grad, torch.full((2, 2), (pc.size() - 1) / 2))


@CHECKS.on(1, 2, 3, 4)
def each_refusal_leaves_a_model_that_goes_on() -> None:
    model = DataParallel(Model(seed=0), **SMALL)
    with pytest.raises(pc.Unsupported, match="create_graph"):
        loss(model, 0).backward(create_graph=True)
    with pytest.raises(pc.InvalidArgument, match="reduced already"):
        DataParallel(model.module)
    for how in (copy.deepcopy, pickle.dumps):
        with pytest.raises(pc.InvalidArgument, match=r"\.module"):
            how(model)
    with pytest.raises(pc.InvalidArgument, match="nothing to train"):
        DataParallel(nn.ReLU())
    with pytest.raises(pc.InvalidArgument, match="group must be"):
        DataParallel(nn.Linear(1, 1), group=3)  # type: ignore[arg-type]
    model.module.frozen.requires_grad_(True)
    with pytest.raises(pc.InvalidArgument, match=r'"frozen.weight" requires grad since'):
        model(batch(0, 0))
    model.module.frozen.requires_grad_(False)
    model.module.first.requires_grad_(False)
    model.zero_grad()
    loss(model, 1).backward()
    assert model.module.first.weight.grad is None, "one that is frozen now is left alone"
    model.module.first.requires_grad_(True)
    model.zero_grad()
    loss(model, 0).backward()
    check(model, [(0, "left")])

    x = torch.ones(2, 4, requires_grad=True)  # grad() returns gradients that are differentiated again
    model.zero_grad()
    (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    slope.square().sum().backward()
    assert model.module.first.weight.grad.any()


@CHECKS.on(1, 2, 3, 4)
def no_hook_remains_once_it_is_deleted_or_closed() -> None:
    module = Model(seed=0)
    model = DataParallel(module, **SMALL)
    model.close()
    assert not any(each._post_accumulate_grad_hooks for each in module.parameters())
    with pytest.raises(pc.InvalidArgument, match="close"):
        model(batch(0, 0))
    again = DataParallel(module, **SMALL)
    loss(again, 0).backward()
    check(again, [(0, "left")])
    del again
    gc.collect()
    assert not any(each._post_accumulate_grad_hooks for each in module.parameters())


@CHECKS.on(1, 2, 3, 4)
def parameters_that_came_later_are_refused() -> None:
    model = DataParallel(Model(seed=0), **SMALL)
    inner = model.module
    inner.frozen.requires_grad_(True)
    with pytest.raises(pc.InvalidArgument, match=r'"frozen.weight" requires grad since'):
        inner(torch.ones(1, 4)).sum().backward()  # bypasses forward() of the DataParallel
    inner.frozen.requires_grad_(False)
    model.zero_grad()
    loss(model, 0).backward()
    check(model, [(0, "left")])
    for place, other in ((inner, nn.Linear(6, 6)), (inner.left, nn.Parameter(torch.ones(6, 6)))):
        name = "left" if place is inner else "weight"
        before = getattr(place, name)
        setattr(place, name, other)
        with pytest.raises(pc.InvalidArgument, match=r'"left.weight" was put into the module after'):
            model(batch(0, 0))
        setattr(place, name, before)
    model.zero_grad()
    inner.add_module("added", nn.ReLU())  # nothing to train
    loss(model, 1).backward()
    check(model, [(1, "left")])


@CHECKS.on(1, 2, 3, 4)
def tensors_that_cannot_all_be_given_are_refused_on_every_rank() -> None:
    module = nn.Linear(2, 2)
    module.register_buffer("table", torch.zeros(1).expand(3))
    with pytest.raises(pc.InvalidArgument, match='"table" of shape .* is expanded'):
        DataParallel(module)
    module.register_buffer("table", torch.eye(3).to_sparse())
    with pytest.raises(pc.InvalidArgument, match='"table" has layout torch.sparse_coo, .*to_dense'):
        DataParallel(module)
    module.register_buffer("table", torch.eye(3).to_sparse_csr())
    with pytest.raises(pc.InvalidArgument, match='"table" has layout torch.sparse_csr'):
        DataParallel(module)
    with pytest.raises(pc.InvalidArgument, match='"weight" has layout torch.sparse_coo'):
        DataParallel(nn.ParameterDict({"weight": nn.Parameter(torch.eye(3).to_sparse())}))
    module.register_buffer("table", torch.zeros(4))
    module.register_buffer("part", module.table[1:])
    with pytest.raises(pc.InvalidArgument, match='"table" and "part" share memory'):
        DataParallel(module)
    module.part = torch.zeros(3)
    DataParallel(module)


@CHECKS.on(1, 2, 3, 4)
def hooks_see_views_where_a_bucket_has_been_sent() -> None:
    layers = nn.Sequential(*[nn.Linear(2, 2, bias=False) for _ in range(4)])
    model = DataParallel(layers, bucket_nbytes=32, first_bucket_nbytes=32)  # two of them in each bucket
    view = model._hooks._reducer.view
    seen: list[list[bool]] = []
    layers[1].weight.register_post_accumulate_grad_hook(
        lambda _: seen.append([each.weight.grad is view(f"{n}.weight") for n, each in enumerate(layers)])
    )
    for _ in range(2):
        model.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
    assert seen == [[False, False, True, True]] * 2
    assert all(each.weight.grad is view(f"{n}.weight") for n, each in enumerate(layers))


@CHECKS.on(1, 2, 3, 4)
def models_that_differ_are_refused() -> None:
    if pc.size() == 1:
        return
    with pytest.raises(pc.CollectiveMismatch, match='parameter 0 is "weight" float32'):
        DataParallel(nn.Linear(2, 2 + pc.rank()))
    with pytest.raises(pc.CollectiveMismatch, match="bias"):
        DataParallel(nn.Linear(2, 2, bias=pc.rank() == 0))
    assert pc.allreduce(1) == pc.size()


@CHECKS.on(1, 2, 3, 4)
def reentrant_checkpoints_are_right_or_refused() -> None:
    """Such a checkpoint is a backward in backward."""
    layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(4)])
    for number, each in enumerate(layers.parameters()):
        each.data = integers(*each.shape, seed=number)
    model = DataParallel(layers, **SMALL)

    def forward(x: Any, places: list[int], way: bool) -> Any:
        for place in places:  # the other layers are outside of checkpoints
            x = checkpoint(layers[place], x, use_reentrant=way) if place in (1, 2) else layers[place](x)
        return x

    for places, way in (([1, 0, 2, 3], True), ([1, 2], True), ([1, 1, 3], False)):
        model.zero_grad()
        forward(integers(2, 3, seed=pc.rank()).requires_grad_(), places, way).sum().mul(pc.size()).backward()
        alone = copy.deepcopy(layers)
        for rank in range(pc.size()):
            x = integers(2, 3, seed=rank)
            for place in places:
                x = alone[place](x)
            x.sum().backward()
        for mine, theirs in zip(layers.parameters(), alone.parameters(), strict=True):
            assert mine.grad is None if theirs.grad is None else torch.equal(mine.grad, theirs.grad), places
    with pytest.raises(pc.InvalidArgument, match="use_reentrant=False"):
        forward(torch.ones(2, 3, requires_grad=True), [1, 1, 3], True).sum().backward()


@CHECKS.on(1, 2, 3, 4)
def states_are_those_of_the_module() -> None:
    inner = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    model = DataParallel(inner)
    state = model.state_dict()
    assert [*state] == [*inner.state_dict()]
    other = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    other.load_state_dict(state)
    assert not model.load_state_dict(other.state_dict()).missing_keys
    with pytest.raises(pc.Unsupported, match="before wrapping"):
        model.load_state_dict(state, assign=True)
    of_ddp = {f"module.{name}": torch.full_like(value, 3) for name, value in state.items()}
    assert not model.load_state_dict(of_ddp).missing_keys
    assert all((parameter == 3).all() for parameter in inner.parameters())
    assert [*of_ddp] == [f"module.{name}" for name in state], "it stays as it was"
    with pytest.raises(RuntimeError, match=r"module\.0\.weight"):
        model.load_state_dict({**of_ddp, "0.weight": of_ddp["module.0.weight"]})
    nested, bare = nn.ModuleDict({"net": model}), nn.ModuleDict({"net": other})
    assert [*nested.state_dict()] == [*bare.state_dict()]
    for parameter in other.parameters():
        nn.init.constant_(parameter, 2.0)
    nested.load_state_dict(bare.state_dict())
    assert all((parameter == 2).all() for parameter in inner.parameters())
    bare.load_state_dict(nested.state_dict())
    with pytest.raises(pc.Unsupported, match="before wrapping"):
        nested.load_state_dict(bare.state_dict(), assign=True)


@CHECKS.on(1, 2, 3, 4)
def collectives_of_the_model_in_backward_have_no_order_to_buckets() -> None:
    """Ranks complete buckets at different times, so the model's own calls run between others."""
    first, last = nn.Linear(3, 3), nn.Linear(3, 3)
    norm = pc.torch.SyncBatchNorm(3)
    model = DataParallel(nn.Sequential(first, norm, last), bucket_nbytes=1, first_bucket_nbytes=1)
    x = norm(first(torch.randn(4, 3)))
    # on the other ranks the bucket of `last` is sent at the end
    (last(x) if pc.rank() == 0 else x).square().sum().backward()
    same = pc.allgather(last.weight.grad[None])
    assert all(torch.equal(each, same[0]) for each in same)
    assert model.module is not None


@CHECKS.on(1, 2, 3, 4)
def scalers_autocast_and_clipping_see_reduced_gradients() -> None:
    rank = pc.rank()
    torch.manual_seed(0)
    model = DataParallel(nn.Linear(4, 2), compression="bf16")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for bad in (False, True):
        before = model.module.weight.detach().clone()
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(torch.full((2, 4), float("inf") if bad and rank == 0 else 1.0))
        scaler.scale(out.float().sum()).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        assert len(set(pc.allgather(norm[None]).tolist())) == 1 or bad
        assert torch.equal(before, model.module.weight) == bad, "an infinity anywhere stops all"
    assert scaler.get_scale() == 512.0
    assert (pc.allgather(model.module.weight.detach()[None]) == model.module.weight).all()


@CHECKS.on(1, 2, 3, 4)
def compiled_inside_and_outside_it_is_the_same() -> None:
    inside = DataParallel(torch.compile(Model(seed=0), backend="aot_eager"), **SMALL)
    loss(inside, 0).backward()
    wrapped = Model(seed=0)
    outside = torch.compile(DataParallel(wrapped, **SMALL), backend="aot_eager")
    for step in (0, 1):
        wrapped.zero_grad()
        loss(outside, step).backward()
    for name, expected in reference([(0, "left")], pc.size()).items():
        assert expected is None or torch.equal(
            inside.module.get_parameter(f"_orig_mod.{name}").grad, expected
        )
    for name, expected in reference([(1, "left")], pc.size()).items():
        assert expected is None or torch.equal(wrapped.get_parameter(name).grad, expected)


@pytest.mark.parametrize(("size", "name"), CHECKS.rows())
def test_on_every_rank(size: int, name: str) -> None:
    assert_passed(__name__, size, name)
