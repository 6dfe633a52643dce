"""Paddle's CPU tensors take part in every call, in place, next to other libraries.

What they cannot do is refused.
"""

from __future__ import annotations

import subprocess
import sys
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from arrays import torch
from raw_objects import raw, tag

import pycollective as pc
from pycollective import testing
from pycollective.arrays.libraries import by_name
from pycollective.objects import object_codec

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Paddle's own import warnings are not ours
    paddle = pytest.importorskip("paddle", reason="Paddle is not installed: pip install 'paddlepaddle>=3.3'")

STANDARD = (
    "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
)  # fmt: skip
MOVED_ONLY = ("bool", "float8_e4m3fn", "float8_e5m2")  # in these tests: sums would be no plain sums
UNSIGNED = ("uint16", "uint32", "uint64")


def from_numpy(x: Any) -> Any:
    return paddle.utils.dlpack.from_dlpack(np.ascontiguousarray(x))


def made(x: Any, dtype: str = "float32") -> Any:
    """Returns a tensor of those numbers, of any type that Paddle has."""
    x = np.asarray(x)
    if dtype in UNSIGNED:
        return from_numpy(x.astype(dtype))
    name = np.dtype(getattr(ml_dtypes, dtype)) if hasattr(ml_dtypes, dtype) else np.dtype(dtype)
    return from_numpy(x.astype(name).reshape(-1).view(np.uint8)).view(dtype_of(dtype)).reshape(x.shape)


def dtype_of(name: str) -> Any:
    return getattr(paddle, name)


def numbers(x: Any) -> Any:
    """Returns its elements as float32 or wider, for all types that Paddle can convert.

    x does not change.
    """
    if x.dtype in (paddle.float8_e4m3fn, paddle.float8_e5m2):
        name = str(x.dtype).removeprefix("paddle.")
        bits = x.detach().view("uint8").numpy()
        return np.ascontiguousarray(bits).view(getattr(ml_dtypes, name)).astype(np.float32)
    return x.detach().astype("float32").numpy() if x.dtype == paddle.bfloat16 else x.detach().numpy()


def numbered(rank: int, shape: tuple[int, ...] = (6, 4)) -> Any:
    return (np.arange(np.prod(shape, dtype=int), dtype=np.float32) + 100 * rank).reshape(shape)


LIBRARIES: list[Callable[[Any], Any]] = [np.asarray, paddle.to_tensor]
if torch is not None:
    LIBRARIES.insert(1, torch.from_numpy)


def everything_mixed(first: int) -> None:
    """Rank 0 has the arrays of one library, rank 1 those of the next, and so on."""
    rank, size = pc.rank(), pc.size()
    libraries = [LIBRARIES[(first + r) % len(LIBRARIES)] for r in range(size)]
    mine = libraries[rank]
    all_numbers = [numbered(r) for r in range(size)]
    total = sum(all_numbers)

    def x() -> Any:
        return mine(numbered(rank))

    def same(got: Any, want: Any, library: Callable[[Any], Any] = mine) -> None:
        assert type(got) is type(library(numbered(0))), type(got)
        np.testing.assert_array_equal(np.asarray(got), want)

    same(pc.allreduce(x()), total)
    same(pc.broadcast(x(), root=size - 1), all_numbers[-1])
    same(pc.reduce(x(), root=0), total if rank == 0 else numbered(rank))
    same(pc.scan(x()), sum(all_numbers[: rank + 1]))
    same(pc.exscan(x()), sum(all_numbers[:rank]) if rank else numbered(0))
    same(pc.allgather(x()), np.concatenate(all_numbers))
    same(pc.allgather(x(), axis=1), np.concatenate(all_numbers, axis=1))
    same(pc.allreduce(x(), reproducible="world"), sum(all_numbers).sum(axis=0))
    even = [numbered(r, (2 * size, 3)) for r in range(size)]
    part = slice(2 * rank, 2 * rank + 2)
    same(pc.reduce_scatter(mine(even[rank])), sum(even)[part])
    same(pc.alltoall(mine(even[rank])), np.concatenate([each[part] for each in even]))
    gathered = pc.gather(x(), root=size - 1)
    if rank == size - 1:
        same(gathered, np.concatenate(all_numbers))
    same(pc.scatter(mine(even[0]) if rank == 0 else None), even[0][part], libraries[0])
    if rank == 0 and size > 1:
        pc.send(x(), 1)
    elif rank == 1:
        same(pc.recv(x(), 0), numbered(0))


@pytest.mark.parametrize(("n", "first"), [(1, len(LIBRARIES) - 1), (2, 1), (3, 0), (3, 1), (3, 2)])
def test_ranks_of_different_libraries_take_part_in_every_call(n: int, first: int) -> None:
    testing.run(everything_mixed, n, first)


def every_dtype() -> None:
    rank, size = pc.rank(), pc.size()
    for dtype in (*STANDARD, *MOVED_ONLY):
        plain = (np.arange(6).reshape(3, 2) + rank) % 2
        for x in (made(plain, dtype), made(plain.T, dtype).T):
            address, strides = x.data_ptr(), x.strides
            got = pc.allreduce(x, "max") if "complex" not in dtype else pc.allreduce(x)
            want = np.ones((3, 2)) if size > 1 else plain
            if "complex" in dtype:
                want = sum((np.arange(6).reshape(3, 2) + r) % 2 for r in range(size))
            assert got is x
            assert (x.dtype, x.data_ptr(), x.strides) == (dtype_of(dtype), address, strides)
            np.testing.assert_array_equal(numbers(x), want, dtype)
            gathered = pc.allgather(made(plain, dtype)[:, 1])
            assert (type(gathered), gathered.dtype, gathered.stop_gradient) == (paddle.Tensor, x.dtype, True)
            columns = [(np.arange(6).reshape(3, 2)[:, 1] + r) % 2 for r in range(size)]
            np.testing.assert_array_equal(numbers(gathered), np.concatenate(columns), dtype)


@pytest.mark.parametrize("n", [1, 2])
def test_every_element_type_of_paddle_takes_part_in_place_and_in_new_tensors(n: int) -> None:
    testing.run(every_dtype, n)


def lying(x: Any, which: int) -> Any:
    """Returns a tensor of those numbers in one of several memory layouts."""
    if x.ndim == 0 or which == 0:
        return made(x)
    if which == 1:
        return made(x.transpose()).transpose(list(range(x.ndim))[::-1])
    if which == 2:
        wide = made(np.zeros((*x.shape, 2)))
        view = wide[..., 1]
    else:
        view = made(np.zeros(x.shape))[::-1]
    if x.size:
        view.copy_(made(x), True)
    return view


def like_numpy() -> None:
    """Every call on Paddle's tensors gives what it gives on NumPy's arrays."""
    rank, size = pc.rank(), pc.size()
    lengths = [2, 0, 3][:size]
    shapes: tuple[tuple[int, ...], ...] = ((6, 4, 2), (3, 0, 2), (5,))
    ways = [(shape, axis, which) for shape in shapes for axis in range(len(shape)) for which in range(4)]
    for shape, axis, which in ways:
        part = numbered(rank, (*shape[:axis], lengths[rank], *shape[axis + 1 :]))
        whole = numbered(rank, (*shape[:axis], sum(lengths), *shape[axis + 1 :]))
        calls: list[tuple[Any, Callable[[Any], Any]]] = [
            (part, lambda x, axis=axis: pc.allgather(x, counts=lengths, axis=axis)),
            (part, lambda x, axis=axis: pc.allgather(x, counts="auto", axis=axis)),
            (part, lambda x, axis=axis: pc.gather(x, counts=lengths, axis=axis)),
            (whole, lambda x, axis=axis: pc.reduce_scatter(x, counts=lengths, axis=axis)),
            (whole, lambda x, axis=axis: pc.alltoall(x, counts=lengths, axis=axis)),
            (whole, lambda x, axis=axis: pc.scatter(x, counts=lengths, axis=axis)),
            (whole, lambda x: pc.allreduce(x, reproducible="world")),
            (whole, pc.allreduce), (whole, pc.scan), (whole, pc.broadcast),
        ]  # fmt: skip
        for x, call in calls:
            want, tensor = call(x.copy()), lying(x, which)
            place = tensor.data_ptr(), tensor.strides
            got = call(tensor)
            assert (tensor.data_ptr(), tensor.strides) == place
            assert want is None or type(got) is paddle.Tensor
            if want is not None:
                np.testing.assert_array_equal(numbers(got), want)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_any_shape_axis_cut_and_layout_is_as_with_numpy(n: int) -> None:
    testing.run(like_numpy, n)


def what_lies_between() -> None:
    x = paddle.full((3, 4), 7.0)
    column = x[:, 1]
    column.copy_(paddle.full((3,), float(pc.rank())), True)
    assert pc.allreduce(column) is column
    assert (x.numpy()[:, [0, 2, 3]] == 7).all()
    assert (x.numpy()[:, 1] == pc.size() * (pc.size() - 1) / 2).all()
    out = x[:, 3]
    assert pc.allreduce(np.full(3, 2, np.float32), out=out) is out
    assert (x.numpy()[:, 3] == 2 * pc.size()).all()
    assert (x.numpy()[:, [0, 2]] == 7).all()
    array = np.empty((2, pc.size()), np.float32)
    assert pc.allgather(paddle.full((2, 1), 3.0), out=array, axis=1) is array
    assert (array == 3).all()
    target = paddle.zeros((2, 2 * pc.size()))
    part = target[:, ::2]
    assert pc.allgather(np.full((2, 1), 3, np.float32), out=part, axis=1) is part
    assert (target.numpy() == [[3, 0] * pc.size()] * 2).all()


def test_what_lies_between_the_elements_of_a_view_is_untouched() -> None:
    testing.run(what_lies_between, 2)


def lists() -> None:
    rank, size = pc.rank(), pc.size()
    arrays = {
        "b": [np.ones(3, np.float32), paddle.ones((2, 2)).T, paddle.ones((4, 2))[:, 1]],
        "a": (paddle.ones((2,), dtype="bfloat16"), paddle.zeros((0,)), paddle.to_tensor(1.0)),
        "c": paddle.full((1,), rank, dtype="int64"),
    }
    assert pc.allreduce(arrays) is arrays
    assert all((np.asarray(x) == size).all() for x in arrays["b"])
    assert (numbers(arrays["a"][0]) == size).all()
    assert float(arrays["a"][2]) == size
    assert arrays["c"].tolist() == [size * (size - 1) // 2]
    if rank == 0:
        pc.send([paddle.ones((2,)), paddle.arange(3)], 1)
    elif rank == 1:
        ones, first = pc.recv([paddle.zeros((2,)), paddle.zeros((3,), dtype="int64")], 0)
        assert (ones.tolist(), first.tolist()) == ([1, 1], [0, 1, 2])


def test_lists_of_tensors_and_arrays_are_one_call() -> None:
    testing.run(lists, 2)


# ---- autograd


def test_a_write_counts_as_a_modification_and_a_read_does_not(world_of_one: pc.Group) -> None:
    x, out = paddle.ones((3,)), paddle.zeros((3,))
    pc.allreduce(x)
    assert x.inplace_version == 1
    pc.allreduce(x, out=out)
    assert (x.inplace_version, out.inplace_version) == (1, 1)
    pc.broadcast(x, root=0)  # the root is only read
    assert x.inplace_version == 1
    column = paddle.ones((3, 2))[:, 1]
    pc.allreduce(column)  # through a copy
    assert column.inplace_version == 1


def test_a_leaf_that_requires_grad_is_written_as_under_no_grad(world_of_one: pc.Group) -> None:
    leaf = paddle.to_tensor([1.0, 2.0, 3.0], stop_gradient=False)
    parameter = paddle.create_parameter((3,), "float32")
    for x in (leaf, parameter):
        assert pc.allreduce(x) is x
        assert not x.stop_gradient
        assert x.is_leaf
        assert pc.allreduce([x])[0] is x
        (x * 2).sum().backward()
        assert pc.allreduce(x.grad, "avg").tolist() == [2, 2, 2]
    assert leaf.tolist() == [1, 2, 3]
    assert pc.allgather(leaf).stop_gradient


def test_a_non_leaf_is_refused_when_it_would_be_written_and_may_be_read(world_of_one: pc.Group) -> None:
    x = paddle.to_tensor([[1.0, 2.0]], stop_gradient=False) * 2
    for written in (x, x.T):
        with pytest.raises(pc.InvalidArgument, match=r"x requires grad .*x\.detach\(\)\.clone\(\)"):
            pc.allreduce(written)
        with pytest.raises(pc.InvalidArgument, match="out requires grad"):
            pc.allreduce(paddle.ones(written.shape), out=written)
    with pytest.raises(pc.InvalidArgument, match=r"x\[0\] requires grad"):
        pc.allreduce([x])
    assert x.inplace_version == 0
    assert pc.allreduce(x, out=paddle.empty((1, 2))).tolist() == [[2, 4]]
    assert pc.allgather(x.T).tolist() == [[2], [4]]
    pc.broadcast(x, root=0)


def test_autograd_notices_that_a_saved_tensor_was_overwritten(world_of_one: pc.Group) -> None:
    for view in (lambda x: x, lambda x: x[:, 0]):
        weight, x = paddle.ones((3, 2)), paddle.ones((3, 2))
        weight.stop_gradient = False
        loss = (weight * x).sum()  # backward needs x
        pc.allreduce(view(x))
        with pytest.raises(RuntimeError, match="inplace"):
            loss.backward()


# ---- what is refused


def test_what_has_no_plain_memory_is_refused(world_of_one: pc.Group) -> None:
    sparse = paddle.sparse.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], (2, 2))
    cleared = paddle.ones((3,))
    cleared._clear()
    for x in (sparse, cleared):
        with pytest.raises(pc.InvalidArgument, match="allreduce: x has no plain memory"):
            pc.allreduce(x)
        with pytest.raises(pc.Unsupported, match="no plain memory"):
            pc.allgather(x, axis=0, counts="auto")
        with pytest.raises(pc.Unsupported, match=r"allreduce: x\[0\]: .* no plain memory"):
            pc.allreduce([x])
    assert pc.allreduce(sparse.values()).tolist() == [1, 2]


def test_an_expanded_tensor_may_be_read_and_is_refused_where_it_would_be_written(
    world_of_one: pc.Group,
) -> None:
    x = paddle.as_strided(paddle.to_tensor([5.0]), (4,), (0,))
    assert x.strides == [0]
    with pytest.raises(pc.InvalidArgument, match=r"expanded.*x\.clone\(\)"):
        pc.allreduce(x)
    assert pc.allgather(x).tolist() == [5] * 4


def test_types_that_paddle_hardly_knows_are_taken_as_they_lie_or_refused(world_of_one: pc.Group) -> None:
    for dtype in UNSIGNED:
        x = made([[1, 2], [3, 4]], dtype)
        assert pc.allreduce(x) is x
        assert pc.allgather(x, out=np.empty((2, 2), dtype)).tolist() == [[1, 2], [3, 4]]
        with pytest.raises(pc.Unsupported, match=f"allgather: x: Paddle makes no tensors of {dtype}"):
            pc.allgather(x)
        with pytest.raises(pc.Unsupported, match=rf"x\[0\]: Paddle makes no tensors of {dtype}"):
            pc.allreduce([x])


def test_a_paddle_that_makes_copies_for_views_is_refused_where_views_are_needed(
    world_of_one: pc.Group,
) -> None:
    x = paddle.ones((2, 2))
    paddle.set_flags({"FLAGS_use_stride_kernel": False})
    try:
        assert pc.allreduce(x) is x
        with pytest.raises(pc.Unsupported, match="FLAGS_use_stride_kernel"):
            pc.allgather(x, axis=1)
        with pytest.raises(pc.Unsupported, match="FLAGS_use_stride_kernel"):
            pc.allreduce(x, reproducible="world")
        with pytest.raises(pc.InvalidArgument, match="FLAGS_use_stride_kernel"):
            object_codec.encode(x, most_nbytes=100)
    finally:
        paddle.set_flags({"FLAGS_use_stride_kernel": True})


class FarAway:
    """What PaddleTensors reads of a tensor on a GPU, which these tests do not have."""

    dtype = paddle.float32
    place = paddle.CPUPlace()
    shape = (3,)

    def is_dense(self) -> bool:
        return True


def test_a_tensor_on_another_device_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    library = by_name("paddle")
    assert library.shape(FarAway()) == (3,)
    place = SimpleNamespace(is_cpu_place=lambda: False, is_cuda_pinned_place=lambda: False)
    monkeypatch.setattr(FarAway, "place", place)
    with pytest.raises(
        pc.Unsupported, match=r"of Paddle pycollective takes tensors on the CPU alone: pass x\.cpu\(\)"
    ):
        library.shape(FarAway())
    assert library.is_block(FarAway())  # the core refuses it


class OldTensor(paddle.base.framework.EagerParamBase):
    """A tensor of a Paddle version without the exchange interface."""

    __dlpack_c_exchange_api__ = None


def test_a_paddle_without_the_exchange_interface_is_refused(world_of_one: pc.Group) -> None:
    x = OldTensor([3], paddle.float32)
    with pytest.raises(pc.Unsupported, match="Paddle older than 3.3"):
        pc.allreduce(x)


# ---- lifetime, objects, imports


def moved_under_a_call() -> None:
    if pc.rank() == 1:
        pc.barrier()
        pc.send(np.ones(1000, np.float32), 0)
        return
    array = np.zeros(1000, np.float32)
    memory = weakref.ref(array)
    x = from_numpy(array)
    del array
    work = pc.recv_async(x, 1)
    x._clear()  # only the call has a reference now
    array = memory()
    assert array is not None
    pc.barrier()
    work.wait()
    assert (array == 1).all()
    del array, work
    assert memory() is None


def test_the_memory_of_a_tensor_lives_as_long_as_the_call_and_no_longer() -> None:
    testing.run(moved_under_a_call, 2)


OBJECTS = [
    *(made([[0, 1], [1, 0], [1, 1]], dtype) for dtype in (*STANDARD, *MOVED_ONLY)),
    *(made([[0, 1, 1], [1, 0, 1]], dtype).T for dtype in (*STANDARD, *MOVED_ONLY)),
    paddle.to_tensor(1.5), paddle.zeros((0, 3)), paddle.ones((3, 4))[:, 1],
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(OBJECTS)))
def test_tensors_in_objects_come_back_as_they_were(number: int) -> None:
    value = OBJECTS[number]
    place = value.data_ptr(), value.strides
    data = object_codec.encode({"a": [value, 1]}, most_nbytes=1 << 20)
    assert (value.data_ptr(), value.strides) == place
    back = object_codec.decode(data)["a"][0]
    assert (type(back), back.dtype, back.shape) == (paddle.Tensor, value.dtype, value.shape)
    np.testing.assert_array_equal(numbers(back), numbers(value))


def test_tensors_that_would_lose_something_are_not_sent_as_objects() -> None:
    leaf = paddle.to_tensor(1.0, stop_gradient=False)
    sparse = paddle.sparse.sparse_coo_tensor([[0], [1]], [1.0], (2, 2))
    for value, why in (
        (leaf, r"send x\.detach\(\)"),
        (sparse, "without plain memory"),
        (made([1], "uint32"), "of <DataType.UINT32"),
        (made([1], "uint16"), "of <DataType.UINT16"),
        (paddle.create_parameter((2,), "float32"), "EagerParamBase, which cannot be sent"),
    ):
        with pytest.raises(pc.InvalidArgument, match=why):
            object_codec.encode(value, most_nbytes=1 << 20)


@pytest.mark.parametrize(
    "lie",
    [
        raw([tag(24), "float32", 1 << 62]), raw([tag(24), "uint32", 1], b"\0" * 32), raw([tag(24), "save", 1]),
        raw([tag(24), "float32", True]), raw([tag(24), "float32", *[1] * 10], b"\0" * 32),
        raw([tag(24), "float32", *[0] * 40]), raw([tag(24), "float32", 0, 1 << 62, 1 << 62]),
        raw([tag(24), "float32", -1]), raw([tag(24), 3, 1]),
    ],
)  # fmt: skip
def test_bytes_that_claim_to_be_a_tensor_are_refused(lie: Any) -> None:
    with pytest.raises(object_codec.Malformed):
        object_codec.decode(lie)


def test_bools_that_are_none_are_refused() -> None:
    with pytest.raises(object_codec.Malformed, match="bool with other bytes than 0 and 1"):
        object_codec.decode(raw([tag(24), "bool", 1], b"\2" * 32))


def test_pycollective_imports_no_paddle_and_a_module_of_that_name_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "paddle.py").write_text("class Tensor: pass\n")
    program = (
        "import sys, numpy as np, pycollective as pc\npc.init()\npc.allreduce(np.ones((2, 2)).T)\npc.allreduce([1.5])\n"
        "assert 'paddle' not in sys.modules\nsys.path.insert(0, sys.argv[1])\nimport paddle\n"
        "print(pc.allreduce(np.ones((2, 2)).T).tolist(), pc.allreduce(2), pc.allreduce([bytearray(b'a')]))\n"
        "try: pc.allreduce(paddle.Tensor())\nexcept pc.InvalidArgument as e: print(e)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.stdout.startswith("[[1.0, 1.0], [1.0, 1.0]] 2 [bytearray(b'a')]\n"), ended.stderr
    assert "is a Tensor, not an array" in ended.stdout


def test_a_seed_is_for_paddle_too() -> None:
    def drawn(seed: int) -> list[float]:
        pc.seed(seed, per_rank=False)
        return list(paddle.rand([4]).numpy())

    first = drawn(3)
    assert drawn(4) != first
    assert drawn(3) == first
