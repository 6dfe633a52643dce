"""pc.paddle: gradients of data parallel training are those of one process.

Batches are normalized together.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pycollective as pc
from pycollective import testing

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Paddle's own import warnings are not ours
    paddle = pytest.importorskip("paddle", reason="Paddle is not installed: pip install 'paddlepaddle>=3.3'")

nn = paddle.nn


class Net(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.left, self.right, self.never = (
            nn.Linear(3, 4),
            nn.Linear(4, 2),
            nn.Linear(4, 2),
            nn.Linear(1, 1),
        )

    def forward(self, x: Any, branch: str = "left") -> Any:
        return getattr(self, branch)(nn.functional.relu(self.first(x)))


def net() -> Net:
    """A network of small whole numbers, so that sums are exact in any order."""
    model, random = Net(), np.random.default_rng(1)
    for each in model.parameters():
        each.set_value(random.integers(-3, 4, each.shape).astype("float32"))
    return model


def batch(rank: int, step: int) -> Any:
    return paddle.to_tensor(np.random.default_rng(10 * step + rank).integers(-3, 4, (2, 3)).astype("float32"))


def gradients(model: Any) -> dict[str, Any]:
    return {name: None if each.grad is None else each.grad.numpy() for name, each in model.named_parameters()}


def alone(steps: list[tuple[int, Any]]) -> dict[str, Any]:
    """Returns the gradients of one process over these steps of all ranks.

    `branch` may depend on the rank.
    """
    model = net()
    for step, branch in steps:
        for rank in range(pc.size()):
            (model(batch(rank, step), branch(rank)).sum() / pc.size()).backward()
    return gradients(model)


def check(model: Any, steps: list[tuple[int, Any]]) -> None:
    expected = alone(steps)
    for name, got in gradients(model._layers).items():
        if expected[name] is None:
            assert got is None, name
        else:
            np.testing.assert_allclose(got, expected[name], rtol=1e-6, err_msg=name)


def left(rank: int) -> str:
    return "left"


def by_rank(rank: int) -> str:
    return "right" if rank else "left"


def trains_as_one_process() -> None:
    rank = pc.rank()
    for bucket_nbytes in (1, 1 << 20):
        inner = net()
        if rank:
            for each in inner.parameters():
                each.set_value(paddle.zeros_like(each))
        model = pc.paddle.DataParallel(inner, bucket_nbytes=bucket_nbytes, first_bucket_nbytes=bucket_nbytes)
        assert [*model.state_dict()] == [*inner.state_dict()]
        for step, branch in enumerate((left, by_rank, left)):
            model(batch(rank, step), branch(rank)).sum().backward()
            check(model, [(step, branch)])
            model.clear_gradients(False)
        with model.no_sync():
            model(batch(rank, 3)).sum().backward()
        model(batch(rank, 4)).sum().backward()
        check(model, [(3, left), (4, left)])
        model.clear_gradients(False)
        if rank:
            model(batch(rank, 5)).sum().backward()
        else:
            model.synchronize()
        expected = sum(
            np.asarray(gradient)
            for gradient in [alone_of(rank_, 5)["first.weight"] for rank_ in range(1, pc.size())]
        )
        np.testing.assert_allclose(model._layers.first.weight.grad.numpy(), expected / pc.size(), rtol=1e-6)
        model.close()
        with pytest.raises(pc.InvalidArgument, match="close"):
            model(batch(rank, 0))


def alone_of(rank: int, step: int) -> dict[str, Any]:
    model = net()
    model(batch(rank, step)).sum().backward()
    return gradients(model)


@pytest.mark.parametrize("size", [2, 3])
def test_gradients_are_those_of_one_process(size: int) -> None:
    testing.run(trains_as_one_process, size)


class Raises(paddle.autograd.PyLayer):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 1

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        raise KeyError("broken")


def survives_what_goes_wrong() -> None:
    rank = pc.rank()
    model = pc.paddle.DataParallel(net(), timeout=20)
    if rank == 0:
        with pytest.raises(Exception, match="broken"):
            model._layers.left(Raises.apply(model._layers.first(batch(0, 0)))).sum().backward()
        model.reset()
    else:
        with pytest.raises(SystemError) as raised:
            model(batch(rank, 0)).sum().backward()
        assert isinstance(raised.value.__cause__, pc.CollectiveMismatch)
    model.clear_gradients(False)
    model(batch(rank, 1)).sum().backward()
    check(model, [(1, left)])
    for wrong, why in (("model", "Layer of Paddle"), (nn.ReLU(), "nothing to train")):
        with pytest.raises(pc.InvalidArgument, match=why):
            pc.paddle.DataParallel(wrong)
    inner = net()
    inner.right.weight.stop_gradient = True
    frozen = pc.paddle.DataParallel(inner)
    frozen(batch(rank, 0), "right").sum().backward()
    assert inner.right.weight.grad is None
    inner.right.weight.stop_gradient = False
    for step in (lambda: frozen(batch(rank, 1)), frozen.synchronize):
        with pytest.raises(pc.InvalidArgument, match=r'"right\.weight" requires a gradient since.*anew'):
            step()
    with pytest.raises(SystemError) as raised:  # for a loss that bypassed the DataParallel's forward
        inner(batch(rank, 1), "right").sum().backward()
    first: BaseException = raised.value
    while first.__cause__ is not None:  # Paddle runs the next hook
        first = first.__cause__
    assert isinstance(first, pc.InvalidArgument)
    with pytest.raises(pc.CollectiveMismatch, match=r"parameter 0 is \"weight\""):
        pc.paddle.DataParallel(nn.Linear(2 + rank, 2))
    assert pc.allreduce(1) == pc.size()


def test_errors_are_raised_on_all_ranks_and_training_goes_on() -> None:
    testing.run(survives_what_goes_wrong, 2)


def test_what_travels_is_on_the_cpu_whatever_device_paddle_computes_on(
    monkeypatch: pytest.MonkeyPatch, world_of_one: pc.Group
) -> None:
    """In a build for GPUs, a tensor without an explicit place is on the GPU."""
    places, made = [], paddle.to_tensor

    def to_tensor(*data: Any, place: Any = "the GPU", **named: Any) -> Any:
        places.append(str(place))
        return made(*data, **named)

    def on_the_gpu(*_: Any, **__: Any) -> None:
        raise AssertionError("names no place")

    model, x = net(), batch(0, 0)
    monkeypatch.setattr(paddle, "to_tensor", to_tensor)
    for name in ("zeros", "ones", "full"):
        monkeypatch.setattr(paddle, name, on_the_gpu)
    wrapped = pc.paddle.DataParallel(model)
    wrapped(x).sum().backward()
    assert places == ["Place(cpu)"] * 2


class OnAGpu(paddle.base.framework.EagerParamBase):  # type: ignore[misc,name-defined]
    """Claims to be on a GPU, because a build for the CPU makes no real one."""

    class Place:
        def is_cpu_place(self) -> bool:
            return False

        is_cuda_pinned_place = is_cpu_place

        def __str__(self) -> str:
            return "Place(gpu:0)"

    place = Place()


def test_what_lies_on_a_gpu_is_refused_by_name(world_of_one: pc.Group) -> None:
    model = net()
    wrapped = pc.paddle.DataParallel(model)
    model.left.weight.__class__ = OnAGpu
    said = (
        r'"left.weight" lies on Place\(gpu:0\), and pc.paddle trains on the CPU alone: call paddle.set_device'
    )
    with pytest.raises(pc.Unsupported, match=said):
        wrapped(batch(0, 0))
    with pytest.raises(pc.Unsupported, match=said):
        pc.paddle.DataParallel(model)
    several: Any = SimpleNamespace(size=2)
    layer = pc.paddle.SyncBatchNorm(3, group=several)
    with pytest.raises(pc.Unsupported, match=r'SyncBatchNorm: "input" lies on Place\(gpu:0\)'):
        layer(SimpleNamespace(shape=[2, 3], place=OnAGpu.place))
    buffered = nn.Linear(2, 1)
    buffered._buffers["table"] = SimpleNamespace(place=OnAGpu.place)
    buffered.named_buffers = buffered._buffers.items
    with pytest.raises(pc.Unsupported, match='"table" lies on'):
        pc.paddle.DataParallel(buffered)


SHAPES: list[tuple[Any, tuple[int, ...], str]] = [
    (nn.BatchNorm1D, (5, 3), "NCHW"),
    (nn.BatchNorm2D, (5, 3, 2, 2), "NCHW"),
    (nn.BatchNorm2D, (5, 2, 2, 3), "NHWC"),
    (nn.BatchNorm3D, (5, 3, 1, 2, 2), "NCDHW"),
]


def normalizes_all_batches_together() -> None:
    rank, size = pc.rank(), pc.size()
    for kind, shape, data_format in SHAPES:
        more = {} if kind is nn.BatchNorm1D else {"data_format": data_format}
        whole = np.random.default_rng(3).standard_normal((shape[0] * size, *shape[1:])).astype("float32")
        cuts = [0, *range(1, size), shape[0] * size]  # ranks have different batches
        one = kind(3, **more)
        x_one = paddle.to_tensor(whole, stop_gradient=False)
        y_one = one(x_one)
        (y_one * paddle.to_tensor(whole)).sum().backward()
        layer = pc.paddle.SyncBatchNorm.convert(nn.Sequential(kind(3, **more)))[0]
        part = slice(cuts[rank], cuts[rank + 1])
        x = paddle.to_tensor(whole[part], stop_gradient=False)
        y = layer(x)
        (y * paddle.to_tensor(whole[part])).sum().backward()
        close = {"rtol": 1e-4, "atol": 1e-5}
        np.testing.assert_allclose(y.numpy(), y_one.numpy()[part], **close)
        np.testing.assert_allclose(x.grad.numpy(), x_one.grad.numpy()[part], **close)
        for name in ("weight", "bias"):
            total = pc.allreduce(getattr(layer, name).grad.clone())
            np.testing.assert_allclose(total.numpy(), getattr(one, name).grad.numpy(), **close)
        np.testing.assert_allclose(layer._mean.numpy(), one._mean.numpy(), **close)
        np.testing.assert_allclose(layer._variance.numpy(), one._variance.numpy(), **close)
        layer.eval()
        one.eval()
        np.testing.assert_allclose(layer(x).numpy(), one(x_one).numpy()[part], **close)
    with pytest.raises(ValueError, match="more than 1 value"):
        pc.paddle.SyncBatchNorm(3)(paddle.ones([int(rank == 0), 3]))
    for kind, shape, _ in SHAPES[:2]:  # empty on all ranks
        layer, one = pc.paddle.SyncBatchNorm.convert(kind(3)), kind(3)
        for each in (layer, one):
            x = paddle.zeros([0, *shape[1:]])
            x.stop_gradient = False
            y = each(x)
            y.sum().backward()
            assert y.shape == x.grad.shape == [0, *shape[1:]]
            for values, expected in ((each._mean, 0), (each._variance, 1), (each.weight.grad, 0)):
                assert values.tolist() == [expected] * 3
    with pytest.raises(pc.InvalidArgument, match="3 channels"):
        pc.paddle.SyncBatchNorm(3)(paddle.ones([2, 4]))


# What stops gradients: the input, as of a first layer on raw data; no weight or bias; a frozen
# parameter.
STOPS: list[tuple[bool, dict[str, Any], str]] = [
    (True, {}, ""),
    (False, {"weight_attr": False}, ""),
    (False, {"bias_attr": False}, ""),
    (False, {"weight_attr": False, "bias_attr": False}, ""),
    (False, {}, "weight"),
    (False, {}, "bias"),
    (True, {}, "bias"),
]


def goes_backward_where_inputs_stop_gradients() -> None:
    rank, size = pc.rank(), pc.size()
    whole = np.random.default_rng(4).standard_normal((4 * size, 3)).astype("float32")
    part = slice(4 * rank, 4 * rank + 4)
    normalized = (whole - whole.mean(0)) / np.sqrt(whole.var(0) + 1e-5)
    # Paddle's own layer has no gradient of the bias where there is no weight.
    sums = {"weight": (whole * normalized).sum(0), "bias": whole.sum(0)}
    for raw, attributes, frozen in STOPS:
        one = nn.BatchNorm1D(3, **attributes)
        layer = pc.paddle.SyncBatchNorm(3, **attributes)
        found = []
        for each, data in ((one, whole), (layer, whole[part])):
            if frozen:
                getattr(each, frozen).stop_gradient = True
            x = paddle.to_tensor(data, stop_gradient=raw)
            (each(x) * paddle.to_tensor(data)).sum().backward()
            found.append(x.grad)
        if raw:
            assert found == [None, None]
        else:
            np.testing.assert_allclose(found[1].numpy(), found[0].numpy()[part], rtol=1e-4, atol=1e-5)
        for name, expected in sums.items():
            got = getattr(layer, name)
            if f"{name}_attr" in attributes or name == frozen:
                assert got is None or got.grad is None
            else:
                total = pc.allreduce(got.grad.clone())
                np.testing.assert_allclose(total.numpy(), expected, rtol=1e-4, atol=1e-5)


def test_a_layer_goes_backward_where_inputs_stop_gradients() -> None:
    testing.run(goes_backward_where_inputs_stop_gradients, 2)


@pytest.mark.parametrize("size", [2, 3])
def test_a_batch_is_normalized_over_all_ranks(size: int) -> None:
    testing.run(normalizes_all_batches_together, size)


def test_names_of_paddles_classes_are_answered_by_ours(world_of_one: pc.Group) -> None:
    with pytest.raises(
        AttributeError, match=r"write pc\.torch\.SyncBatchNorm\.convert\(model\), or that of pc\.paddle"
    ):
        pc.paddle.SyncBatchNorm.convert_sync_batchnorm(net())
    model: Any = pc.paddle.DataParallel(net())
    with pytest.raises(AttributeError, match="leave it out: the mean over ranks needs no scaled loss"):
        model.scale_loss(1)
    with pytest.raises(AttributeError, match="leave it out: backward.. averages gradients"):
        model.apply_collective_grads()
    assert not hasattr(model, "scale_loss")
    assert {"scale_loss", "apply_collective_grads"}.isdisjoint(dir(model))
    assert "convert_sync_batchnorm" not in dir(pc.paddle.SyncBatchNorm.convert(nn.BatchNorm1D(3)))


def test_convert_keeps_parameters_and_a_layer_in_two_places_one(world_of_one: pc.Group) -> None:
    norm = nn.BatchNorm1D(3)
    model = nn.Sequential(nn.Linear(2, 3), norm, nn.Sequential(norm))
    converted = pc.paddle.SyncBatchNorm.convert(model)
    assert converted is model
    assert type(model[1]) is type(model[2][0]) is pc.paddle.SyncBatchNorm
    assert model[1] is model[2][0]
    assert model[1].weight is norm.weight
    assert [*model.state_dict()] == [*nn.Sequential(nn.Linear(2, 3), norm, nn.Sequential(norm)).state_dict()]
    assert type(pc.paddle.SyncBatchNorm.convert(norm)) is pc.paddle.SyncBatchNorm


def loads_batches() -> None:
    class Points(paddle.io.Dataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return 8

        def __getitem__(self, sample: int) -> Any:
            return np.full(2, sample, np.float32)

    for workers in (0, 1):
        loader = pc.data.DataLoader(Points(), global_batch_size=4, num_workers=workers)
        for number, x in enumerate(loader):
            x = x[0] if isinstance(x, list) else x
            begin = 4 * number + 2 * pc.rank()
            assert x[:, 0].tolist() == [begin, begin + 1]


def test_a_dataset_of_paddle_is_read_by_its_loader() -> None:
    testing.run(loads_batches, 2)


class Numbered(paddle.io.Dataset):  # type: ignore[misc]
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return np.full(2, index, "float32")


def paddles_own_words() -> tuple[int, int, list[list[int]], str]:
    import paddle.distributed as dist

    layer = nn.Linear(2, 1)
    with pytest.raises(AssertionError) as raised:
        paddle.DataParallel(layer)
    sampler = paddle.io.DistributedBatchSampler(Numbered(), batch_size=2)
    return dist.get_rank(), dist.get_world_size(), list(sampler), str(raised.value)


def words_after_a_world_by_hand(address: str) -> tuple[int, int, list[list[int]], str]:
    """Imitates mpirun, and queries Paddle before and after."""
    place = int(os.environ["PYCOLLECTIVE_RANK"])
    for name in [name for name in os.environ if name.startswith("PADDLE_")]:
        del os.environ[name]
    paddle.distributed.parallel._global_parallel_env = None
    assert (paddle.distributed.get_rank(), paddle.distributed.get_world_size()) == (0, 1)
    pc.init(address, rank=1 - place, size=2)
    words = paddles_own_words()
    pc.shutdown()
    return words


def test_paddles_own_words_know_the_world_and_do_not_train_apart(tmp_path: Path) -> None:
    launched = testing.run(paddles_own_words, 2)
    by_hand = testing.run(words_after_a_world_by_hand, 2, f"file://{tmp_path}/rendezvous", init=False)
    for words in (launched, by_hand[::-1]):
        assert [each[:3] for each in words] == [
            (0, 2, [[0, 1], [4, 5]]),
            (1, 2, [[2, 3], [6, 7]]),
        ]
        assert all("init_parallel_env" in each[3] for each in words)
