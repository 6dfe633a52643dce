"""pc.torch.Pipeline: a model in stages on several ranks trains as the whole one in one process."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np
import pytest
from arrays import torch
from named_checks import Checks, assert_passed

import pycollective as pc
from pycollective import testing

if torch is None:
    pytest.skip("torch is not installed", allow_module_level=True)

from torch import nn

from pycollective.torch.optimizer import DistributedOptimizer
from pycollective.torch.pipeline import Pipeline, schedule

CHECKS = Checks()
mse = nn.functional.mse_loss


def integers(*shape: int, seed: int) -> Any:
    """Returns small whole numbers, so sums and products of them are exact."""
    return torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(seed)).double()


def stages(count: int, width: int = 4) -> list[Any]:
    """Returns the stages of the whole model, the same on every rank."""
    made = []
    for index in range(count):
        linear = nn.Linear(width, width).double()
        linear.weight.data = integers(width, width, seed=2 * index)
        linear.bias.data = integers(width, seed=2 * index + 1)
        made.append(linear if index == count - 1 else nn.Sequential(linear, nn.ReLU()))
    return made


def check_gradients(stage: Any, parts: list[Any], batches: list[tuple[Any, Any]]) -> float:
    """Checks that this rank's gradients have the bits of one process with the whole batches."""
    total = 0.0
    for inputs, targets in batches:
        loss = mse(nn.Sequential(*parts)(inputs), targets)
        loss.backward()
        total += loss.item()
    for mine, whole in zip(stage.parameters(), parts[pc.rank()].parameters(), strict=True):
        assert torch.equal(mine.grad, whole.grad)
    return total


@CHECKS.on(2, 4)
def gradients_and_loss_are_those_of_one_process() -> None:
    for micro_batches in (1, 2, 4, 8):
        stage, parts = stages(pc.size())[pc.rank()], stages(pc.size())
        pipeline = Pipeline(stage, micro_batches=micro_batches, loss=mse)
        batches = [(integers(8, 4, seed=7 + i), integers(8, 4, seed=8 + i)) for i in range(2)]
        total = 0.0
        for inputs, targets in batches:  # gradients add up
            first, last = pc.rank() == 0, pc.rank() == pc.size() - 1
            inputs.requires_grad_(micro_batches == 4)
            total += pipeline.step(inputs if first else None, targets if last else None)
        assert total == check_gradients(stage, parts, batches)


@CHECKS.on(2, 4)
def activations_may_be_larger_than_what_goes_without_a_receiver() -> None:
    width = 1 << 15
    narrow, wide = nn.Linear(1, width), nn.Linear(width, 1)
    between = nn.Identity()
    stage = (narrow, *[between] * (pc.size() - 2), wide)[pc.rank()]
    pipeline = Pipeline(stage, micro_batches=8, loss=mse)
    assert pipeline.step(torch.ones(8, 1), torch.ones(8, 1)) > 0
    for parameter in stage.parameters():
        assert parameter.grad is not None


@CHECKS.on(2)
def batches_that_do_not_divide_count_by_their_samples() -> None:
    stage, parts = stages(2)[pc.rank()], stages(2)
    inputs, targets = integers(7, 4, seed=1), integers(7, 4, seed=2)
    loss = Pipeline(stage, micro_batches=4, loss=mse).step(inputs, targets)
    whole = mse(nn.Sequential(*parts)(inputs), targets)
    whole.backward()
    assert loss == pytest.approx(whole.item())
    for mine, theirs in zip(stage.parameters(), parts[pc.rank()].parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)


@CHECKS.on(2)
def messages_say_what_they_are() -> None:
    """Shapes and dtypes change from step to step, also to those that NumPy lacks.

    Integers have no gradient.
    """
    for dtype in (torch.bfloat16, torch.float64, torch.complex64):
        stage = nn.Linear(3, 3).to(dtype)
        pipeline = Pipeline(stage, micro_batches=2, loss=lambda x, y: (x - y).abs().square().mean())
        for samples in (2, 5):
            pipeline.step(torch.ones(samples, 3).to(dtype), torch.zeros(samples, 3).to(dtype))
            assert stage.weight.grad is not None
    embedding = nn.Embedding(5, 3)
    words = Pipeline(
        embedding if pc.rank() else nn.Identity(), micro_batches=2, loss=lambda x, _: x.square().mean()
    )
    words.step(torch.tensor([1, 2, 2, 4]), torch.ones(4))
    assert pc.rank() == 0 or embedding.weight.grad.count_nonzero() == 9


@CHECKS.on(2, 4)
def a_stage_without_trainable_parameters_is_left_alone() -> None:
    for frozen in range(pc.size()):
        stage, parts = stages(pc.size())[pc.rank()], stages(pc.size())
        stage.requires_grad_(pc.rank() != frozen)
        inputs, targets = integers(4, 4, seed=1), integers(4, 4, seed=2)
        Pipeline(stage, micro_batches=2, loss=mse).step(inputs, targets)
        if pc.rank() == frozen:
            assert all(each.grad is None for each in stage.parameters())
        else:
            check_gradients(stage, parts, [(inputs, targets)])


@CHECKS.on(2, 4)
def a_call_goes_forward_alone() -> None:
    stage, parts = stages(pc.size())[pc.rank()], stages(pc.size())
    outputs = Pipeline(stage, micro_batches=4)(integers(6, 4, seed=3))
    if pc.rank() == pc.size() - 1:
        assert outputs is not None
        assert torch.equal(outputs, nn.Sequential(*parts)(integers(6, 4, seed=3)))
        assert not outputs.requires_grad
    else:
        assert outputs is None
    assert all(each.grad is None for each in stage.parameters())


class Fragile(nn.Module):
    """Raises in its `when`-th forward, or in the backward of that."""

    def __init__(self, stage: Any) -> None:
        super().__init__()
        self.stage = stage
        self.fails: str | None = None
        self.calls = 0

    def forward(self, x: Any) -> Any:
        self.calls += 1
        output = self.stage(x)
        if self.calls % 4 == 2 and self.fails == "forward":
            raise KeyError("a bad sample")
        if self.calls % 4 == 0 and self.fails == "backward":
            output.register_hook(self._fail)
        if self.fails == "tuple":
            return (output, output)
        return output

    def _fail(self, _: Any) -> None:
        raise KeyError("a bad sample")


@CHECKS.on(2, 4)
def what_fails_on_one_rank_is_raised_on_all_and_the_next_step_is_right() -> None:
    inputs, targets = integers(8, 4, seed=1), integers(8, 4, seed=2)
    stage, parts = Fragile(stages(pc.size())[pc.rank()]), stages(pc.size())
    pipeline = Pipeline(stage, micro_batches=4, loss=mse)
    for failing in range(pc.size()):
        for where in ("forward", "backward"):
            stage.fails, stage.calls = where if pc.rank() == failing else None, 0
            with pytest.raises(KeyError, match="a bad sample") as caught:
                pipeline.step(inputs, targets)
            cause = caught.value.__cause__
            assert isinstance(cause, pc.RemoteError) != (pc.rank() == failing)
            stage.fails = None
            stage.zero_grad()
            pipeline.step(inputs, targets)
        stage.fails = "tuple" if pc.rank() == failing else None
        if failing < pc.size() - 1:
            with pytest.raises(pc.InvalidArgument, match=f"rank {failing} returned a tuple"):
                pipeline.step(inputs, targets)
        stage.fails = None
        stage.zero_grad()
    pipeline.step(inputs, targets)
    check_gradients(stage, parts, [(inputs, targets)])


@CHECKS.on(2)
def bad_batches_are_refused_on_all_ranks() -> None:
    pipeline = Pipeline(stages(2)[pc.rank()], micro_batches=4, loss=mse)
    good = integers(4, 4, seed=1)
    for bad, found in ((None, "got none"), (good[:3], "got 3 samples")):
        with pytest.raises(pc.InvalidArgument, match=f"rank 0 needs inputs .*{found}"):
            pipeline.step(bad, good)
        with pytest.raises(pc.InvalidArgument, match=f"rank 1 needs targets .*{found}"):
            pipeline.step(good, bad)
    with pytest.raises(pc.InvalidArgument, match="needs a loss"):
        Pipeline(stages(2)[pc.rank()], micro_batches=4).step(good, good)
    with pytest.raises(pc.InvalidArgument, match="inputs and targets differ by 4 samples"):
        Pipeline(stages(2)[pc.rank()], micro_batches=4, loss=lambda x, _: x.mean()).step(
            good, integers(8, 4, seed=1)
        )
    with pytest.raises(RuntimeError, match="size of tensor"):
        pipeline.step(good, integers(4, 5, seed=1))
    pipeline.step(good, good)


@CHECKS.on(2)
def ranks_that_differ_in_micro_batches_all_raise() -> None:
    with pytest.raises(pc.CollectiveMismatch, match=r"micro_batches: \[1, 2\]"):
        Pipeline(nn.Identity(), micro_batches=1 + pc.rank())
    with pytest.raises(pc.InvalidArgument, match=r"\[0, 1\]"):
        Pipeline(nn.Identity(), micro_batches=pc.rank())
    assert Pipeline(nn.Identity(), micro_batches=np.int64(4)).micro_batches == 4
    kind, words = (TypeError, r"write int\('4'\)") if pc.rank() else (pc.InvalidArgument, r"say \[4, 0\]")
    with pytest.raises(kind, match=words):
        Pipeline(nn.Identity(), micro_batches="4" if pc.rank() else 4)  # type: ignore[arg-type]


@CHECKS.on(2)
def a_step_that_was_given_up_is_not_followed_by_another() -> None:
    pipeline = Pipeline(stages(2)[pc.rank()], micro_batches=2, loss=mse, timeout=0.05)
    good = integers(4, 4, seed=1)
    if pc.rank() == 1:
        with pytest.raises(pc.CollectiveTimeout):
            pipeline.step(good, good)
        with pytest.raises(pc.InvalidArgument, match="make a new Pipeline"):
            pipeline.step(good, good)
    pc.barrier()


@CHECKS.on(2)
def a_step_on_one_rank_and_a_call_on_another_raise_on_both() -> None:
    pipeline = Pipeline(stages(2)[pc.rank()], micro_batches=2, loss=mse)
    good = integers(4, 4, seed=1)
    with pytest.raises(pc.CollectiveMismatch, match=r"1 of 2 ranks called step\(\)"):
        pipeline.step(good, good) if pc.rank() else pipeline(good)
    with pytest.raises(pc.InvalidArgument, match="make a new Pipeline"):
        pipeline.step(good, good)


@CHECKS.on(4)
def two_stages_in_two_copies_train_as_one_process() -> None:
    mesh = pc.Mesh((2, 2), ("dp", "pp"))
    copy, place = mesh.coordinates["dp"], mesh.coordinates["pp"]
    stage, parts = stages(2)[place], stages(2)
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.25, momentum=0.5)
    optimizer = DistributedOptimizer(optimizer, group=mesh["dp"], backward_passes_per_step=2)
    pipeline = Pipeline(stage, micro_batches=2, loss=mse, group=mesh["pp"])
    alone = torch.optim.SGD(nn.Sequential(*parts).parameters(), lr=0.25, momentum=0.5)
    for step in range(2):
        inputs, targets = integers(8, 4, seed=step), integers(8, 4, seed=step + 5)
        optimizer.zero_grad()
        mine = slice(4 * copy, 4 * copy + 4)
        loss = pipeline.step(inputs[mine], targets[mine])
        optimizer.step()
        alone.zero_grad()
        whole = mse(nn.Sequential(*parts)(inputs), targets)
        whole.backward()
        alone.step()
        assert mesh["dp"].allreduce(loss, "avg") == whole.item()
        for here, there in zip(stage.parameters(), parts[place].parameters(), strict=True):
            assert torch.equal(here, there)


@pytest.mark.parametrize(("size", "name"), CHECKS.rows())
def test_on_every_rank(size: int, name: str) -> None:
    assert_passed(__name__, size, name)


@pytest.mark.parametrize("count", range(1, 6))
@pytest.mark.parametrize("micro_batches", range(1, 9))
def test_the_schedule_keeps_few_activations(count: int, micro_batches: int) -> None:
    for stage in range(count):
        passes = list(schedule(stage, count, micro_batches))
        for kind in ("forward", "backward"):
            assert [index for each, index in passes if each == kind] == list(range(micro_batches))
        kept = 0
        for kind, index in passes:
            assert kind == "forward" or ("forward", index) in passes[: passes.index((kind, index))]
            kept += 1 if kind == "forward" else -1
            assert kept <= min(count - stage, micro_batches)


def test_alone_it_is_the_whole_model() -> None:
    pc.init()
    stage, inputs, targets = stages(1)[0], integers(4, 4, seed=1), integers(4, 4, seed=2)
    loss = Pipeline(stage, micro_batches=2, loss=mse).step(inputs, targets)
    assert loss == check_gradients(stage, stages(1), [(inputs, targets)])
    pc.shutdown()


def dies_in_its_stage() -> None:
    stage = nn.Linear(4, 4).double()
    if pc.rank() == 0:
        stage.register_forward_hook(lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    Pipeline(stage, micro_batches=2, loss=mse).step(integers(4, 4, seed=1), integers(4, 4, seed=2))


def test_the_death_of_a_stage_ends_the_step() -> None:
    with pytest.raises(testing.WorldFailed) as caught:
        testing.run(dies_in_its_stage, 2, timeout_s=40)
    assert isinstance(caught.value.errors[1].exception, pc.PeerFailure)
