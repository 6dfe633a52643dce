"""An array that cannot be moved raises an error type of ours, not the error of its framework."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from arrays import torch

import pycollective as pc

CALLS: dict[str, Callable[[Any], Any]] = {
    "allreduce": pc.allreduce,
    "allreduce of a list": lambda x: pc.allreduce([x]),
    "broadcast": pc.broadcast,
    "broadcast of a list": lambda x: pc.broadcast([x]),
    "reduce": pc.reduce,
    "scan": pc.scan,
    "allgather": pc.allgather,
    "gather": pc.gather,
    "scatter": pc.scatter,
    "alltoall": pc.alltoall,
    "reduce_scatter": pc.reduce_scatter,
    "GradientReducer": lambda x: pc.GradientReducer({"x": x}),
    "metrics.sum": pc.metrics.sum,
}


def keys() -> Any:
    import jax

    return jax.random.split(jax.random.key(0), 3)


def int4() -> Any:
    import jax.numpy as jnp

    return jnp.zeros(3, jnp.int4)


def nested(layout: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls them a prototype
        return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=getattr(torch, layout))


def sparse_rows() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls them beta
        return torch.eye(3).to_sparse_csr()


ARRAYS: dict[str, Callable[[], Any]] = {
    "keys of JAX": keys,
    "scalar without kernels": lambda: (
        np.longdouble(1) if np.dtype(np.longdouble).itemsize > 8 else np.str_("a")
    ),
    "text": lambda: np.str_("a"),
}
OF_TORCH: dict[str, Callable[[], Any]] = {
    "sparse tensor": lambda: torch.eye(3).to_sparse(),
    "sparse rows": sparse_rows,
    "nested tensor": lambda: nested("strided"),
    "jagged tensor": lambda: nested("jagged"),
    "tensor without memory": lambda: torch.ones(2, device="meta"),
}
# calls that take any dtype
MOVES = ("broadcast", "broadcast of a list", "allgather", "gather", "scatter", "alltoall")


def is_refused(array: str, call: str) -> bool:
    """Returns whether the call rejects such an array.

    Scalars can be moved, are numbers among arrays, and have a sum.
    """
    if array == "scalar without kernels" and call == "metrics.sum":
        return False
    return array not in ("scalar without kernels", "text") or (call not in MOVES and "list" not in call)


REFUSED = [
    (array, call)
    for array in (*ARRAYS, *(OF_TORCH if torch is not None else ()))
    for call in CALLS
    if is_refused(array, call)
]


@pytest.mark.parametrize(("array", "call"), REFUSED)
def test_it_is_refused_with_an_error_of_ours(world_of_one: pc.Group, array: str, call: str) -> None:
    x = {**ARRAYS, **OF_TORCH}[array]()
    with pytest.raises((pc.CollectiveError, TypeError)) as error:
        CALLS[call](x)
    assert call.split(" ")[0].removeprefix("metrics.") in str(error.value) or "value" in str(error.value)
    assert pc.allreduce(1) == 1


def test_keys_of_jax_raise_what_to_write_instead(world_of_one: pc.Group) -> None:
    for call in (pc.broadcast, pc.allreduce, pc.allgather):
        with pytest.raises(
            pc.Unsupported, match=r"array of random keys \(key<fry>\) .*jax\.random\.key_data\(x\)"
        ):
            call(keys())


def test_elements_of_four_bits_are_refused_by_their_name(world_of_one: pc.Group) -> None:
    with pytest.raises(pc.CollectiveError, match="int4"):
        pc.allreduce(int4())


class Layer:
    """Imitates Paddle's layer, for which the errors of torch had no meaning."""

    __module__ = "paddle.nn.layer.common"

    def parameters(self) -> list[Any]:
        return []


@pytest.mark.skipif(torch is None, reason="torch is not installed")
@pytest.mark.parametrize("wrapper", ["DataParallel", "DistributedOptimizer", "SyncBatchNorm.convert"])
def test_models_of_other_frameworks_raise_what_to_write_instead(world_of_one: pc.Group, wrapper: str) -> None:
    wrap: Any = pc.torch
    for name in wrapper.split("."):
        wrap = getattr(wrap, name)
    with pytest.raises(
        pc.InvalidArgument, match=rf"{wrapper}: .*not paddle.nn.layer.common.Layer\. For paddle there is pyco"
    ):
        wrap(Layer())
    with pytest.raises(
        pc.InvalidArgument, match=rf"{wrapper}: it takes a torch \w+, not the class .*Linear: make one"
    ):
        wrap(torch.nn.Linear)
    with pytest.raises(pc.InvalidArgument, match=rf"{wrapper}: it takes a torch \w+, not NoneType$"):
        wrap(None)


@pytest.mark.skipif(torch is None, reason="torch is not installed")
@pytest.mark.parametrize(
    ("module", "way"),
    [
        ("jittor.nn", "each.grad for each in model.parameters"),
        ("flax.linen", "jax.tree.unflatten"),
        ("equinox.nn", "jax.tree.unflatten"),
        ("keras.src.models", "model.set_weights"),
        ("mlx.nn", "lists of NumPy arrays"),
    ],
)
def test_every_framework_has_a_hint_of_what_it_can_do(module: str, way: str) -> None:
    model = type("Model", (), {"__module__": module})()
    with pytest.raises(pc.InvalidArgument) as error:
        pc.torch.DataParallel(model)
    assert f"For {module.partition('.')[0]} " in str(error.value)
    assert way in str(error.value)
    assert ("model.parameters()" in str(error.value)) == (module == "jittor.nn")


@pytest.mark.skipif(torch is None, reason="torch is not installed")
def test_torchs_name_of_convert_is_answered_by_ours() -> None:
    with pytest.raises(AttributeError, match=r"write pc\.torch\.SyncBatchNorm\.convert\(model\)"):
        pc.torch.SyncBatchNorm.convert_sync_batchnorm(torch.nn.Linear(2, 2))


def test_recv_under_jax_says_that_it_must_know_the_shape(world_of_one: pc.Group) -> None:
    import pycollective.jax as pcj

    with pytest.raises(
        pc.InvalidArgument, match=r"recv: like must be an array .*pycollective\.recv\(None, peer\)"
    ):
        pcj.recv(None, 0)  # type: ignore[arg-type]
