"""pycollective.torch.functional: messages between the parts of a model, and their gradients."""

from __future__ import annotations

import linecache
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from arrays import torch
from functional_calls import compiled, functional, number_of_the_world
from named_checks import Checks, assert_passed

import pycollective as pc

if torch is None:
    pytest.skip("torch is not installed", allow_module_level=True)

# Compiling imports torch's own old scripts, which warn.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

CHECKS = Checks()


def _pipeline(wrap: Callable[..., Any]) -> None:
    """A model that is cut in two has the gradients of the whole, with batches in flight, too."""
    f, rank = functional(), pc.rank()
    torch.manual_seed(0)
    first, last = torch.nn.Linear(3, 4).double(), torch.nn.Linear(4, 2).double()
    batches = [torch.randn(5, 3, dtype=torch.float64) for _ in range(3)]
    for x in batches:
        last(torch.tanh(first(x))).square().sum().backward()
    mine = list((first if rank == 0 else last).parameters())
    expected = [p.grad for p in mine]
    for p in mine:
        p.grad = None

    def begin(x: Any) -> Any:
        return f.send(torch.tanh(first(x)), 1, tag=3)

    def end(like: Any) -> Any:
        return last(f.recv(like, 0, tag=3)).square().sum()

    stage = wrap(begin if rank == 0 else end)
    inputs = batches if rank == 0 else [torch.empty(5, 4, dtype=torch.float64)] * 3
    for loss in [stage(each) for each in inputs]:
        loss.backward()
    for p, g in zip(mine, expected, strict=True):
        torch.testing.assert_close(p.grad, g, rtol=1e-12, atol=1e-12)


@CHECKS.on(2)
def a_model_cut_in_two_has_the_gradients_of_the_whole() -> None:
    _pipeline(lambda stage: stage)


@CHECKS.on(2)
def a_model_cut_in_two_has_the_gradients_of_the_whole_compiled() -> None:
    _pipeline(compiled)


@CHECKS.on(2, 3)
def messages_count_ranks_in_their_group() -> None:
    f, pair = functional(), pc.group([pc.size() - 1, 0])
    x = torch.ones(2, requires_grad=True)
    if pair is not None and pair.rank == 0:
        f.send(x, 1, group=pair).backward()
        assert x.grad.tolist() == [7, 7]
    elif pair is not None:
        (7 * f.recv(x, 0, group=pair)).sum().backward()


@CHECKS.on(2)
def gradients_and_messages_of_a_tag_are_kept_apart() -> None:
    f, x = functional(), torch.ones(2, requires_grad=True)
    if pc.rank() == 0:
        token = f.send(x, 1)
        assert f.recv(x, 1).tolist() == [5, 5]
        token.backward()
        assert x.grad.tolist() == [7, 7]
    else:
        (7 * f.recv(x, 0)).sum().backward()
        f.send(torch.full((2,), 5.0), 0)


@CHECKS.on(2)
def tokens_require_grad_as_what_is_sent() -> None:
    f, x = functional(), torch.ones(3, requires_grad=True)
    if pc.rank() == 0:
        token = f.send(x, 1)
        assert (token.shape, token.dtype, token.requires_grad) == ((), torch.float32, True)
        assert not f.send(x.detach(), 1).requires_grad
    else:
        f.recv(x, 0), f.recv(x, 0)


@CHECKS.on(2)
def a_token_that_goes_without_backward_is_a_warning() -> None:
    f, x = functional(), torch.ones(2, requires_grad=True)
    if pc.rank() == 1:
        for _ in range(4):
            f.recv(None, 0, requires_grad=False)
        return
    with pytest.warns(RuntimeWarning, match="message to rank 1 went without backward") as warned:
        f.send(x, 1)
    (warning,) = warned
    assert "f.send(x, 1)" in linecache.getline(warning.filename, warning.lineno)
    try:
        raise OSError
    except OSError:  # retries once
        with pytest.warns(RuntimeWarning, match="unless an error has ended the step"):
            f.send(x, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f.send(x.detach(), 1)
        with torch.no_grad():
            f.send(x, 1)


@CHECKS.on(2)
def what_is_received_requires_grad_unless_specified_otherwise() -> None:
    f, x, integers = functional(), torch.ones(3), torch.arange(3)
    if pc.rank() == 0:
        for each in (x, x, x, integers):
            f.send(each, 1)
        return
    assert f.recv(x, 0).requires_grad
    assert not f.recv(x, 0, requires_grad=False).requires_grad
    with torch.no_grad():
        assert not f.recv(x, 0).requires_grad
    assert f.recv(integers, 0).tolist() == [0, 1, 2]


@CHECKS.on(2)
def a_receiver_that_knows_nothing_gets_the_senders_shape_and_dtype_and_sends_a_gradient() -> None:
    f = functional()
    sent = [
        torch.ones(2, 3),
        torch.ones(0, 4),
        torch.tensor(2.0),
        torch.ones(2, dtype=torch.bfloat16),
        torch.ones(3, dtype=torch.float64),
    ]
    if pc.rank() == 0:
        for x in (each.requires_grad_() for each in sent):
            f.send(x * 2, 1, tag=3).backward()
            assert torch.equal(x.grad, torch.full_like(x, 10))
        f.send(torch.arange(3), 1)
        f.send(torch.ones(2), 1)
        pc.send(np.array(["2026-01-01"], "M8[D]"), 1)
        return
    for wanted in sent:
        got = f.recv(None, 0, tag=3)
        assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
        assert torch.equal(got.detach(), wanted * 2)
        (got * 5).sum().backward()
    assert f.recv(None, 0).tolist() == [0, 1, 2]
    assert not f.recv(None, 0, requires_grad=False).requires_grad
    with pytest.raises(pc.Unsupported, match="no dtype of torch"):
        f.recv(None, 0)
    assert pc.recv(None, 0) == np.datetime64("2026-01-01")
    with pytest.raises(pc.CollectiveTimeout, match="recv from rank 0"):
        f.recv(None, 0, timeout=0.05)
    with pytest.raises(pc.InvalidArgument, match="like must be a tensor or None, not tuple"):
        f.recv((2, 3), 0)


@CHECKS.on(3)
def a_message_from_any_rank_is_the_one_that_was_looked_at_and_its_gradient_goes_back_there() -> None:
    f, rank = functional(), pc.rank()
    for like in (None, torch.empty(2)):
        if rank:
            x = torch.full((rank + 1 if like is None else 2,), float(rank), requires_grad=True)
            f.send(x, 0).backward()
            assert x.grad.tolist() == [10.0 * rank] * len(x)
        else:
            came = [f.recv(like, pc.ANY_SOURCE) for _ in range(2)]
            assert sorted(x[0].item() for x in came) == [1, 2]
            assert all(len(x) == (x[0] + 1 if like is None else 2) for x in came)
            sum((x * 10 * x.detach()).sum() for x in came).backward()


class Watched:
    """A group that records the deadlines of its messages."""

    def __init__(self, group: pc.Group) -> None:
        self.group, self.seconds = group, []

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **named: Any) -> Any:
            self.seconds.append((name, named["timeout"] if "timeout" in named else args[-1]))
            return getattr(self.group, name)(*args, **named)

        return call


@CHECKS.on(2)
def what_is_left_of_a_deadline_is_for_the_message_and_not_for_its_gradient() -> None:
    f, x = functional(), torch.ones(3, requires_grad=True)
    if pc.rank() == 0:
        f.send(x, 1).backward()
        return
    watched = Watched(pc.world())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pycollective.torch.functional.messages.group_at", lambda _: watched)
        f.recv(None, 0, timeout=500).sum().backward()
    (looked, left), (received, within), (sent, for_the_gradient) = watched.seconds
    assert (looked, received, sent) == ("_find", "recv", "send")
    assert 500 >= left >= within
    assert for_the_gradient == 500


@CHECKS.on(2)
def second_derivatives_of_messages_are_refused() -> None:
    f, x = functional(), torch.ones(3, requires_grad=True)
    y = f.send(x, 1) if pc.rank() == 0 else f.recv(x, 0).sum()
    with pytest.raises(pc.Unsupported, match="second derivatives"):
        y.backward(create_graph=True)


@CHECKS.on(2)
def torch_finds_nothing_wrong_with_the_operations_of_messages() -> None:
    functional()
    parameters = ([3], torch.float32, 1 - pc.rank(), 5, number_of_the_world(), None, None)
    if pc.rank() == 0:
        x = torch.ones(3, requires_grad=True)
        torch.library.opcheck(torch.ops.pycollective.send.default, (x, *parameters))
    else:
        anchor = torch.zeros((), requires_grad=True)
        torch.library.opcheck(torch.ops.pycollective.recv.default, (anchor, *parameters))


@pytest.mark.parametrize(("size", "name"), CHECKS.rows())
def test_on_every_rank(size: int, name: str) -> None:
    assert_passed(__name__, size, name)
