"""pc.torch.DataParallel where backward raises or a rank dies: the other ranks are informed.

The next step is right.
"""

from __future__ import annotations

import copy
import os
import signal
from typing import Any

import pytest
from arrays import torch
from named_checks import Checks, assert_passed

import pycollective as pc
from pycollective import testing

if torch is None:
    pytest.skip("torch is not installed", allow_module_level=True)

from fault_in_backward import Raises
from torch import nn

from pycollective.torch.data_parallel import DataParallel

CHECKS = Checks()


@CHECKS.on(1, 2, 3, 4)
def a_fault_in_backward_is_reported_to_the_others_and_the_next_step_works() -> None:
    last = pc.size() - 1
    layers = nn.Sequential(*[nn.Linear(2, 2, bias=False) for _ in range(4)])
    model = DataParallel(layers, bucket_nbytes=16, first_bucket_nbytes=16)
    for layer in layers:
        layer.weight.data = torch.eye(2)

    def step(broken: int | None) -> None:
        x = torch.ones(1, 2) * pc.rank()
        for number, layer in enumerate(layers):
            x = Raises.apply(layer(x)) if number == broken else layer(x)
        x.sum().backward()

    mean = last / 2
    for broken in range(4):  # backward reaches it last, ..., first
        model.zero_grad()
        if pc.rank() == last:
            with pytest.raises(KeyError):
                step(broken)
            if broken == 3:  # before the first gradient, so no other rank can know that there was a step
                model.reset()
        else:
            with pytest.raises(pc.CollectiveMismatch, match="given this step up"):
                step(None)
        model.zero_grad()
        model(torch.ones(1, 2) * pc.rank()).sum().backward()
        assert all(torch.equal(layer.weight.grad, torch.full((2, 2), mean)) for layer in layers)


@CHECKS.on(1, 2, 3, 4)
def gradients_that_came_before_a_fault_are_not_those_of_the_next_step() -> None:
    layers = nn.ModuleList([nn.Linear(2, 2, bias=False) for _ in range(3)])
    model = DataParallel(layers)  # one bucket, which is incomplete when the fault occurs
    first, middle, last = layers
    x = torch.ones(1, 2)
    with pytest.raises(KeyError):
        last(Raises.apply(middle(first(x)))).sum().backward()
    model.zero_grad()
    middle(first(x * pc.rank())).sum().backward()  # without the gradient computed before the fault
    assert last.weight.grad is None
    alone = copy.deepcopy(layers)
    alone.zero_grad()
    alone[1](alone[0](x * (pc.size() - 1) / 2)).sum().backward()
    torch.testing.assert_close(first.weight.grad, alone[0].weight.grad)
    torch.testing.assert_close(middle.weight.grad, alone[1].weight.grad)


@pytest.mark.parametrize(("size", "name"), CHECKS.rows())
def test_on_every_rank(size: int, name: str) -> None:
    assert_passed(__name__, size, name)


class Dies(Raises):
    @staticmethod
    def backward(context: Any, gradient: Any) -> Any:
        if pc.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return gradient


def until_one_dies() -> str:
    first, last = nn.Linear(3, 3), nn.Linear(3, 3)
    model = DataParallel(nn.ModuleList([first, last]), bucket_nbytes=16, first_bucket_nbytes=16)
    for _ in range(3):
        last(first(torch.ones(2, 3))).sum().backward()
    x = last(Dies.apply(first(torch.ones(2, 3)))).sum()
    with pytest.raises(pc.PeerFailure) as raised:
        x.backward()
    with pytest.raises(pc.PeerFailure):
        model.synchronize()  # and so in every later step
    return str(raised.value)


def test_a_rank_that_dies_in_backward_is_a_peer_failure_from_backward() -> None:
    """They raise long before the deadline, which is 600 s."""
    with pytest.raises(testing.WorldFailed) as failed:
        testing.run(until_one_dies, 3)
    assert set(failed.value.errors) == {1}, failed.value
    for text in failed.value.results.values():
        assert "rank 1" in text
