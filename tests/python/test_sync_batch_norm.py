"""SyncBatchNorm is BatchNorm on the batches of all ranks together."""

from __future__ import annotations

import copy
import doctest
from typing import Any

import pytest
from arrays import torch

import pycollective as pc
from pycollective import testing

if torch is None:
    pytest.skip("torch is not installed", allow_module_level=True)

from torch import nn

# Compiling imports torch's own old scripts, which warn.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def layer_class() -> Any:
    torch.set_num_threads(1)
    from pycollective.torch.sync_batch_norm import SyncBatchNorm

    return SyncBatchNorm


def collectives() -> list[str | None]:
    return [call["collective"] for call in pc.debug.dump()["calls"] if call["kind"] == "collective"]


# The batch of each rank; the last of them are for ranks that a smaller world does not have.
BATCHES = {"even": [3, 3, 3], "uneven": [5, 1, 2], "one empty": [4, 0, 3]}


def compare(counts: list[int], dtype: Any, *, shift: float = 0, **how: Any) -> None:
    """Two steps of training and one of evaluation, on all ranks and on one batch in float64."""
    rank = pc.rank()
    counts = counts[: pc.size()]
    torch.manual_seed(1)
    ours = layer_class()(3, **how).to(dtype)
    if ours.weight is not None:
        nn.init.normal_(ours.weight)
        nn.init.normal_(ours.bias)
    whole = nn.BatchNorm2d(3, **how).double()
    whole.load_state_dict(ours.state_dict())
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2}[dtype]
    close = {"rtol": tolerance, "atol": tolerance}
    for training in (True, True, False):
        ours.train(training), whole.train(training)
        x = (torch.randn(sum(counts), 3, 4, 5) * 2 + shift).to(dtype)
        w = torch.randn(x.shape).to(dtype)
        mine, weights = x.split(counts)[rank].clone().requires_grad_(), w.split(counts)[rank]
        x = x.double().requires_grad_()
        ours.zero_grad(), whole.zero_grad()
        expected = whole(x)
        (expected * w).sum().backward()
        before = len(collectives())
        y = ours(mine)
        forward = collectives()[before:]
        (y * weights).sum().backward()
        assert forward == (["allgather"] if training else [])
        assert collectives()[before + len(forward) :] == (["allreduce"] if training else [])
        # Evaluation is torch's own code: by running statistics, or by this rank's batch alone.
        if training or (ours.track_running_stats and not shift):
            torch.testing.assert_close(y.double(), expected.split(counts)[rank], **close)
            torch.testing.assert_close(mine.grad.double(), x.grad.split(counts)[rank], **close)
            for p, q in zip(ours.parameters(), whole.parameters(), strict=True):
                total = pc.allreduce(p.grad.double())
                torch.testing.assert_close(total, q.grad, rtol=tolerance, atol=10 * tolerance)
        assert y.dtype == mine.grad.dtype == dtype
    for name, buffer in whole.state_dict().items():
        mine = ours.state_dict()[name]
        torch.testing.assert_close(mine, buffer.to(mine.dtype), **close, msg=name)


def as_one_batch() -> None:
    for counts in BATCHES.values():
        compare(counts, torch.float32)
        compare(counts, torch.float64)
    compare(BATCHES["uneven"], torch.float64, momentum=None)
    compare(BATCHES["uneven"], torch.float64, affine=False)
    compare(BATCHES["uneven"], torch.float64, track_running_stats=False)
    compare(BATCHES["uneven"], torch.bfloat16)
    compare(BATCHES["uneven"], torch.float32, shift=1e4)
    compare(BATCHES["one empty"], torch.float32, shift=1e4)
    the_same_large_number()
    too_little()
    if pc.size() == 2:
        of_a_part()
        mixed_precision()
        compiled()
        without_input_gradient()


def the_same_large_number() -> None:
    """Its mean in float32 is rounded, which is not to look like a variance."""
    layer = layer_class()(1, momentum=1.0)
    y = layer(torch.full((10, 1), 10000.3))
    assert float(y.abs().max()) < 1e-4
    assert float(layer.running_var) < 1e-12


def too_little() -> None:
    layer = layer_class()(3)
    for counts in ([0, 1, 0], [0, 0, 0]):
        with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
            layer(torch.ones(counts[pc.rank()], 3))
    assert layer.num_batches_tracked == 0
    assert layer.running_mean.tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match=r"expected an input of shape \(batch, 3, \.\.\.\), got \(2, 4\)"):
        layer(torch.ones(2, 4))


def of_a_part() -> None:
    """Groups: this rank alone is nn.BatchNorm; a copy stays in its group."""
    alone = pc.world().split(pc.rank())
    pair = pc.group([1, 0])
    layer = copy.deepcopy(nn.Sequential(layer_class()(3, group=pair)))[0]
    assert layer.group is pair
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(pc.rank()))
    before = len(collectives())
    y = layer(x)
    assert len(collectives()) == before + 1
    layer.group = alone
    torch.testing.assert_close(layer(x), nn.BatchNorm1d(3)(x))
    assert not torch.allclose(layer(x), y)
    assert len(collectives()) == before + 1


def mixed_precision() -> None:
    """bfloat16 between layers of float32, as autocast makes it; a second derivative is refused."""
    model = nn.Sequential(nn.Linear(3, 4), layer_class()(4), nn.Linear(4, 1))
    x = torch.randn(6, 3, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = model(x)
    y.float().square().sum().backward()
    assert y.dtype == torch.bfloat16
    assert [p.grad.dtype for p in model.parameters()] == [torch.float32] * 6
    (g,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        g.sum().backward()


def compiled() -> None:
    model = nn.Sequential(nn.Linear(3, 4), layer_class()(4), nn.ReLU())
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(pc.rank()))
    expected = [torch.autograd.grad(model(x).square().sum(), list(model.parameters())), model(x)]
    step = torch.compile(model, backend="aot_eager")
    found = [torch.autograd.grad(step(x).square().sum(), list(model.parameters())), step(x)]
    torch.testing.assert_close(found, expected)


def without_input_gradient() -> None:
    """The first layer's input needs no gradient: then backward communicates nothing, as in torch."""
    layer = layer_class()(3)
    y = layer(torch.randn(4, 3))
    before = len(collectives())
    y.square().sum().backward()
    assert len(collectives()) == before
    assert layer.weight.grad is not None


@pytest.mark.parametrize("n", [2, 3])
def test_outputs_gradients_and_statistics_are_those_of_one_batch(n: int) -> None:
    testing.run(as_one_batch, n)


def test_convert_replaces_every_batch_normalization_and_keeps_what_it_has() -> None:
    sync = layer_class()
    shared = nn.BatchNorm3d(2, momentum=None)
    model = nn.ModuleDict(
        {
            "one": nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4, eps=1e-3, dtype=torch.float64)),
            "two": nn.BatchNorm2d(3, affine=False).eval(),
            "three": nn.SyncBatchNorm(2, track_running_stats=False),
            "four": shared,
            "again": nn.ModuleList([shared, nn.InstanceNorm1d(2)]),
        }
    )
    kept = {"parameters": dict(model.named_parameters()), "buffers": dict(model.named_buffers())}
    keys = list(model.state_dict())
    assert sync.convert(model) is model
    assert list(model.state_dict()) == keys
    for what, before in kept.items():
        now = dict(getattr(model, f"named_{what}")())
        assert {name: id(x) for name, x in now.items()} == {name: id(x) for name, x in before.items()}
    layers = [model["one"][1], model["two"], model["three"], model["four"]]
    assert all(type(layer) is sync for layer in layers)
    assert [layer.training for layer in layers] == [True, False, True, True]
    assert model["again"][0] is model["four"]
    assert type(model["again"][1]) is nn.InstanceNorm1d
    assert (layers[0].eps, layers[3].momentum, layers[2].track_running_stats) == (1e-3, None, False)
    assert type(sync.convert(nn.BatchNorm1d(2), group=None)) is sync
    assert sync.convert(layers[0]) is layers[0]
    with pytest.raises(pc.InvalidArgument, match="call the model once"):
        sync.convert(nn.Sequential(nn.LazyBatchNorm1d()))


@pytest.mark.parametrize("name", ["", "convert"])
def test_the_example_runs(name: str) -> None:
    sync = layer_class()
    text = (getattr(sync, name) if name else sync).__doc__
    test = doctest.DocTestParser().get_doctest(text, {}, name or "SyncBatchNorm", None, 0)
    assert test.examples
    report: list[str] = []
    doctest.DocTestRunner().run(test, out=report.append)
    assert not report, "".join(report)
