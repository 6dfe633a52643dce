"""SyncBatchNorm is BatchNorm on the batches of all ranks together.

The second half tests convert().
"""

from __future__ import annotations

import copy
import doctest
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from arrays import torch
from named_checks import Checks, assert_passed

import pycollective as pc

if torch is None:
    pytest.skip("torch is not installed", allow_module_level=True)

from torch import nn

# Compiling imports torch's own old scripts, which warn.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

CHECKS = Checks()


def layer_class() -> Any:
    torch.set_num_threads(1)
    from pycollective.torch.sync_batch_norm import SyncBatchNorm

    return SyncBatchNorm


def calls_of(function: Callable[[], Any]) -> list[str | None]:
    before = len(pc.debug.dump()["calls"])
    function()
    return [each["collective"] for each in pc.debug.dump()["calls"][before:] if each["kind"] == "collective"]


def batch_of_rank(*shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(pc.rank()))


@dataclass
class Setting:
    """A layer and its batches."""

    counts: tuple[int, ...] = (
        5,
        1,
        2,
    )  # of each rank; the last ones are unused in a smaller world
    dtype: Any = torch.float64
    mean: float = 0
    shape: tuple[int, ...] = (3, 4, 5)  # of one sample
    layout: Any = torch.contiguous_format
    how: dict[str, Any] = field(default_factory=dict)

    @property
    def tolerance(self) -> float:
        return {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2}[self.dtype]


SETTINGS = {
    "even_batches_in_float32": Setting((3, 3, 3), torch.float32),
    "even_batches": Setting((3, 3, 3)),
    "uneven_batches_in_float32": Setting(dtype=torch.float32),
    "uneven_batches": Setting(),
    "one_empty_batch_in_float32": Setting((4, 0, 3), torch.float32),
    "one_empty_batch": Setting((4, 0, 3)),
    "momentum_none": Setting(how={"momentum": None}),
    "no_affine": Setting(how={"affine": False}),
    "no_running_stats": Setting(how={"track_running_stats": False}),
    "bfloat16": Setting(dtype=torch.bfloat16),
    "a_large_mean": Setting(dtype=torch.float32, mean=1e4),
    "a_large_mean_and_an_empty_batch": Setting((4, 0, 3), torch.float32, mean=1e4),
    "samples_of_one_axis": Setting(shape=(3,)),
    "samples_of_two_axes": Setting(shape=(3, 4)),
    "samples_of_four_axes": Setting(shape=(3, 2, 2, 2)),
    "channels_last": Setting((4, 0, 3), layout=torch.channels_last),
}


@dataclass
class Step:
    """One step of this rank's layer, and of nn.BatchNorm with all ranks' batches in float64."""

    training: bool
    output: Any
    output_expected: Any
    gradient: Any  # of the input
    gradient_expected: Any
    forward_calls: list[str | None]
    backward_calls: list[str | None]


class Run:
    """Two steps of training and one of evaluation. Each begins without gradients of parameters."""

    def __init__(self, setting: Setting) -> None:
        torch.manual_seed(1)
        self.setting = setting
        self.ours = layer_class()(3, **setting.how).to(setting.dtype)
        if self.ours.weight is not None:
            nn.init.normal_(self.ours.weight)
            nn.init.normal_(self.ours.bias)
        kind = (nn.BatchNorm1d, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)[len(setting.shape) - 1]
        self.whole = kind(3, **setting.how).double()
        self.whole.load_state_dict(self.ours.state_dict())

    def step(self, training: bool) -> Step:
        rank, counts, dtype = pc.rank(), self.setting.counts[: pc.size()], self.setting.dtype
        self.ours.train(training), self.whole.train(training)
        self.ours.zero_grad(), self.whole.zero_grad()
        x = (torch.randn(sum(counts), *self.setting.shape) * 2 + self.setting.mean).to(dtype)
        weights = torch.randn(x.shape).to(dtype)
        mine = x.split(counts)[rank].clone(memory_format=self.setting.layout).requires_grad_()
        x = x.double().requires_grad_()
        expected = self.whole(x)
        (expected * weights).sum().backward()
        made: list[Any] = []
        forward = calls_of(lambda: made.append(self.ours(mine)))
        backward = calls_of(lambda: (made[0] * weights.split(counts)[rank]).sum().backward())
        expected_here = expected.split(counts)[rank], x.grad.split(counts)[rank]
        return Step(training, made[0], expected_here[0], mine.grad, expected_here[1], forward, backward)

    def steps(self) -> list[Step]:
        return [self.step(training) for training in (True, True, False)]

    def comparable_steps(self) -> list[Step]:
        """Evaluation is torch's own code: by running statistics, or by this rank's batch alone."""
        in_eval_too = self.setting.how.get("track_running_stats", True) and not self.setting.mean
        return [step for step in self.steps() if step.training or in_eval_too]

    def close(self, found: Any, expected: Any, factor: int = 1) -> None:
        tolerance = self.setting.tolerance
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=factor * tolerance)


def outputs(run: Run) -> None:
    for step in run.comparable_steps():
        run.close(step.output.double(), step.output_expected)
        assert step.output.dtype == run.setting.dtype
        assert step.output.is_contiguous(memory_format=run.setting.layout)


def gradients_of_inputs(run: Run) -> None:
    for step in run.comparable_steps():
        run.close(step.gradient.double(), step.gradient_expected)
        assert step.gradient.dtype == run.setting.dtype


def gradients_of_parameters(run: Run) -> None:
    run.step(training=True)
    for p, q in zip(run.ours.parameters(), run.whole.parameters(), strict=True):
        run.close(pc.allreduce(p.grad.double()), q.grad, 10)


def running_statistics(run: Run) -> None:
    run.steps()
    for name, buffer in run.whole.state_dict().items():
        mine = run.ours.state_dict()[name]
        run.close(mine, buffer.to(mine.dtype))


def one_call_each_way_and_none_in_eval(run: Run) -> None:
    for step in run.steps():
        assert step.forward_calls == (["allgather"] if step.training else [])
        assert step.backward_calls == (["allreduce"] if step.training else [])


def _as_one_batch(promise: Callable[[Run], None], setting: Setting) -> None:
    promise(Run(setting))


for _setting in SETTINGS:
    for _promise in (
        outputs,
        gradients_of_inputs,
        gradients_of_parameters,
        running_statistics,
        one_call_each_way_and_none_in_eval,
    ):
        _check = functools.partial(_as_one_batch, _promise, SETTINGS[_setting])
        CHECKS.add(f"{_promise.__name__}: {_setting}", _check, 2, 3)


@CHECKS.on(2, 3)
def the_same_large_number_everywhere_has_no_variance() -> None:
    """The rounding of its mean in float32 must not appear as a variance."""
    layer = layer_class()(1, momentum=1.0)
    y = layer(torch.full((10, 1), 10000.3))
    assert float(y.detach().abs().max()) < 1e-4
    assert float(layer.running_var) < 1e-12


@CHECKS.on(2, 3)
def one_value_in_all_is_refused() -> None:
    layer = layer_class()(3)
    with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
        layer(torch.ones(int(pc.rank() == 1), 3))
    assert layer.num_batches_tracked == 0
    assert layer.running_mean.tolist() == [0, 0, 0]


@CHECKS.on(2, 3)
def a_batch_that_is_empty_on_all_ranks_is_that_of_torchs_layer() -> None:
    layer, torchs = layer_class()(3), torch.nn.BatchNorm2d(3)
    x, y = (torch.ones(0, 3, 2, 2, requires_grad=True) for _ in range(2))
    layer(x).sum().backward()
    torchs(y).sum().backward()
    assert x.grad.shape == y.grad.shape
    for mine, theirs in zip(layer.parameters(), torchs.parameters(), strict=True):
        assert torch.equal(mine.grad, theirs.grad)
    for name, buffer in torchs.named_buffers():
        assert torch.equal(layer.get_buffer(name), buffer), name


@CHECKS.on(2)
def inputs_of_another_shape_or_dtype_are_refused() -> None:
    layer = layer_class()(3)
    with pytest.raises(ValueError, match=r"expected an input of shape \(batch, 3, \.\.\.\), got \(2, 4\)"):
        layer(torch.ones(2, 4))
    for dtype in (torch.int64, torch.complex64):
        with pytest.raises(ValueError, match=f"floating dtype, got {dtype}"):
            layer(torch.ones(2, 3, dtype=dtype))


@CHECKS.on(2, 3)
def a_group_has_the_batches_of_its_members_alone() -> None:
    pair = pc.group([pc.size() - 1, 0])
    if pair is None:
        return
    x, whole = batch_of_rank(4, 3).double(), nn.BatchNorm1d(3).double()
    layer = layer_class()(3, group=pair).double()
    y = layer(x)
    torch.testing.assert_close(y, whole(pair.allgather(x))[4 * pair.rank :][:4])
    torch.testing.assert_close(layer.state_dict(), whole.state_dict())


@CHECKS.on(2)
def a_copy_is_on_the_same_group() -> None:
    pair = pc.group([1, 0])
    assert copy.deepcopy(nn.Sequential(layer_class()(3, group=pair)))[0].group is pair


@CHECKS.on(2)
def a_rank_alone_is_torchs_layer_and_makes_no_call() -> None:
    layer = layer_class()(3, group=pc.world().split(pc.rank()))
    x = batch_of_rank(4, 3)
    assert calls_of(lambda: torch.testing.assert_close(layer(x), nn.BatchNorm1d(3)(x))) == []


@CHECKS.on(2)
def eval_without_running_statistics_is_of_this_ranks_batch_and_makes_no_call() -> None:
    layer = layer_class()(3, track_running_stats=False).eval()
    x = batch_of_rank(4, 3)
    assert calls_of(lambda: torch.testing.assert_close(layer(x), nn.BatchNorm1d(3)(x))) == []


@CHECKS.on(2)
def under_autocast_bfloat16_stands_between_layers_of_float32() -> None:
    model = nn.Sequential(nn.Linear(3, 4), layer_class()(4), nn.Linear(4, 1))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = model(batch_of_rank(6, 3))
    y.float().square().sum().backward()
    assert y.dtype == torch.bfloat16
    assert [p.grad.dtype for p in model.parameters()] == [torch.float32] * 6


@CHECKS.on(2)
def a_second_derivative_is_refused() -> None:
    x = batch_of_rank(6, 3).requires_grad_()
    (g,) = torch.autograd.grad(layer_class()(3)(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        g.sum().backward()


@CHECKS.on(2)
def no_grad_normalizes_and_counts_the_batch() -> None:
    layer, x = layer_class()(3), batch_of_rank(4, 3).requires_grad_()
    with torch.no_grad():
        y = layer(x)
    assert not y.requires_grad
    assert layer.num_batches_tracked == 1
    torch.testing.assert_close(y, layer(x).detach())


@CHECKS.on(2)
def frozen_parameters_get_no_gradient_and_the_input_the_same_one() -> None:
    x, layer = batch_of_rank(4, 3).requires_grad_(), layer_class()(3)
    (expected,) = torch.autograd.grad(layer(x).square().sum(), x)
    layer.requires_grad_(False)
    layer(x).square().sum().backward()
    assert layer.weight.grad is None
    torch.testing.assert_close(x.grad, expected)


@CHECKS.on(2)
def compiled_it_does_the_same() -> None:
    model = nn.Sequential(nn.Linear(3, 4), layer_class()(4), nn.ReLU())
    x = batch_of_rank(6, 3)
    expected = [torch.autograd.grad(model(x).square().sum(), list(model.parameters())), model(x)]
    step = torch.compile(model, backend="aot_eager")
    found = [torch.autograd.grad(step(x).square().sum(), list(model.parameters())), step(x)]
    torch.testing.assert_close(found, expected)


@CHECKS.on(2)
def backward_makes_no_call_if_the_input_needs_no_gradient() -> None:
    layer = layer_class()(3)
    y = layer(torch.randn(4, 3))
    assert calls_of(lambda: y.square().sum().backward()) == []
    assert layer.weight.grad is not None


@CHECKS.on(2)
def what_was_compiled_in_place_is_the_new_layer_after_convert() -> None:
    layer = nn.BatchNorm1d(3)
    layer.compile(backend="eager")
    model = layer_class().convert(nn.Sequential(layer))
    assert calls_of(lambda: model(batch_of_rank(4, 3))) == ["allgather"]


@pytest.mark.parametrize(("size", "name"), CHECKS.rows())
def test_on_every_rank(size: int, name: str) -> None:
    assert_passed(__name__, size, name)


def every_kind() -> Any:
    """Returns a model with all that convert() replaces. One layer is used twice."""
    shared = nn.BatchNorm3d(2, momentum=None)
    return nn.ModuleDict(
        {
            "one": nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4, eps=1e-3, dtype=torch.float64)),
            "two": nn.BatchNorm2d(3, affine=False).eval(),
            "three": nn.SyncBatchNorm(2, track_running_stats=False),
            "four": shared,
            "again": nn.ModuleList([shared, nn.InstanceNorm1d(2)]),
        }
    )


def layers_of(model: Any) -> list[Any]:
    return [model["one"][1], model["two"], model["three"], model["four"], model["again"][0]]


def test_convert_replaces_every_batch_normalization_and_nothing_else() -> None:
    sync, model = layer_class(), every_kind()
    assert sync.convert(model) is model
    assert [type(layer) for layer in layers_of(model)] == [sync] * 5
    assert type(model["again"][1]) is nn.InstanceNorm1d
    assert type(sync.convert(nn.BatchNorm1d(2), group=None)) is sync
    assert sync.convert(model["two"]) is model["two"]


def test_convert_keeps_parameters_buffers_and_keys() -> None:
    model = every_kind()
    keys = list(model.state_dict())
    parameters, buffers = dict(model.named_parameters()), dict(model.named_buffers())
    layer_class().convert(model)
    assert list(model.state_dict()) == keys
    for before, now in (
        (parameters, dict(model.named_parameters())),
        (buffers, dict(model.named_buffers())),
    ):
        assert {name: id(x) for name, x in now.items()} == {name: id(x) for name, x in before.items()}


def test_convert_keeps_settings_modes_and_hooks() -> None:
    model, seen = every_kind(), []
    model["two"].register_forward_hook(lambda *_: seen.append("hook"))
    layers = layers_of(layer_class().convert(model))
    assert [layer.training for layer in layers] == [True, False, True, True, True]
    assert (layers[0].eps, layers[3].momentum, layers[2].track_running_stats) == (1e-3, None, False)
    layers[1](torch.ones(1, 3, 1, 1))
    assert seen == ["hook"]


def test_convert_keeps_a_layer_in_two_places_one() -> None:
    model = layer_class().convert(every_kind())
    assert model["again"][0] is model["four"]


class Doubled(nn.BatchNorm1d):
    def forward(self, x: Any) -> Any:
        return 2 * super().forward(x)


def with_its_own_forward() -> Any:
    layer = nn.BatchNorm1d(2)
    layer.forward = lambda x: 2 * x
    return layer


def of_a_process_group() -> Any:
    layer = nn.SyncBatchNorm(2)
    layer.process_group = object()
    return layer


REFUSED = {
    "a lazy layer without an input": (nn.LazyBatchNorm1d, r"layer last\.0 .*call the model once"),
    "a subclass": (
        lambda: Doubled(2),
        r"layer last\.0 is a test_sync_batch_norm\.Doubled.*subclass of SyncB",
    ),
    "a layer with its own forward": (with_its_own_forward, r"layer last\.0 has a forward of its own"),
    "a process group": (of_a_process_group, r"layer last\.0 has a process_group.*group="),
}


@pytest.mark.parametrize("what", REFUSED)
def test_convert_refuses_and_leaves_the_model_as_it_was(what: str) -> None:
    make, why = REFUSED[what]
    model = every_kind()
    model["last"] = nn.Sequential(make())
    before = list(model.modules())
    with pytest.raises(pc.InvalidArgument, match=why):
        layer_class().convert(model)
    assert all(now is then for now, then in zip(model.modules(), before, strict=True))


def test_a_process_group_gives_way_to_the_group_that_is_given(world_of_one: pc.Group) -> None:
    layer = layer_class().convert(of_a_process_group(), group=world_of_one)
    assert layer.group is world_of_one
    assert not hasattr(layer, "process_group")
    assert copy.deepcopy(layer).group is world_of_one


def test_a_subclass_of_ours_stays() -> None:
    class Own(layer_class()):  # type: ignore[misc]
        pass

    model = nn.Sequential(Own(2))
    assert type(layer_class().convert(model)[0]) is Own


@pytest.mark.parametrize("name", ["", "convert"])
def test_the_example_runs(name: str) -> None:
    sync = layer_class()
    text = (getattr(sync, name) if name else sync).__doc__
    test = doctest.DocTestParser().get_doctest(text, {}, name or "SyncBatchNorm", None, 0)
    assert test.examples
    report: list[str] = []
    doctest.DocTestRunner().run(test, out=report.append)
    assert not report, "".join(report)


def test_the_layer_has_what_dir_lists() -> None:
    layer = pc.torch.SyncBatchNorm(2)
    assert [name for name in dir(layer) if not hasattr(layer, name)] == []
