"""Every element type of docs/dtypes.md with every operation, against NumPy's own result."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from arrays import Dlpack, torch

import pycollective as pc
from pycollective import _core, testing

Array = np.ndarray[Any, Any]
SIZES = (1, 2, 3)
COUNT = 1000
FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
SHORT = ("float16", "bfloat16", *FLOAT8)
LOGICAL: dict[str, Any] = {"land": np.logical_and, "lor": np.logical_or, "lxor": np.logical_xor}
UFUNCS: dict[str, Any] = {
    "sum": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
}


def table() -> dict[tuple[str, str], bool]:
    """Returns, for (dtype, op), whether it is supported, as read from the page."""
    rows = [line.strip("| \n").split("|") for line in _core.dtypes_markdown().splitlines() if line[:1] == "|"]
    ops = [cell.strip() for cell in rows[0]]
    return {
        (row[0].strip("` "), op): cell.strip() == "yes"
        for row in rows[2:]
        for op, cell in zip(ops, row[1:], strict=True)
    }


def offered() -> list[tuple[str, str]]:
    return [cell for cell, there in table().items() if there]


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name) if name == "bfloat16" or name in FLOAT8 else name)


def op_called(name: str) -> Any:
    return pc.scaled("sum", 0.5) if name == "scaled sum" else name


def given(dtype: str, op: str, rank: int) -> Array:
    """Returns numbers with exact results in every order of summation.

    They are small whole numbers, any value for integers, and few values for 8-bit floats.
    """
    random = np.random.default_rng([rank, len(op), len(dtype)])
    kind = dtype_of(dtype)
    if dtype == "bool":
        return random.integers(0, 2, COUNT).astype(bool)
    if kind.kind in "iu" and op not in ("minloc", "maxloc"):
        return random.integers(0, 256, COUNT * kind.itemsize, np.uint8).view(kind)
    if op in ("minloc", "maxloc"):
        return random.integers(0, 4, (COUNT, 2)).astype(kind)
    if op == "avg":
        return (random.integers(0, 2, COUNT) * 6).astype(kind)
    x = random.integers(0, 3, COUNT)
    return (x + 1j * random.integers(-2, 3, COUNT)).astype(kind) if kind.kind == "c" else x.astype(kind)


def expected(dtype: str, op: str, columns: list[Array]) -> Array:
    kind = dtype_of(dtype)
    if op in ("minloc", "maxloc"):
        sign = 1 if op == "minloc" else -1
        pairs = zip(*(column.tolist() for column in columns), strict=True)
        return np.array([min(each, key=lambda p: (sign * p[0], p[1])) for each in pairs], kind)
    if op in LOGICAL:
        truth = [column != 0 for column in columns]
        return np.asarray(LOGICAL[op].reduce(truth)).astype(kind)
    if op == "avg":
        return (sum(column.astype(complex) for column in columns) / len(columns)).astype(kind)
    if op == "scaled sum":
        wide = [column.astype(complex if kind.kind == "c" else float) for column in columns]
        return (np.add.reduce(wide) * 0.5).astype(kind)
    if dtype in SHORT:
        return np.asarray(UFUNCS[op].reduce([column.astype(np.float32) for column in columns])).astype(kind)
    if dtype == "bool" and op in ("sum", "prod"):
        return np.asarray((np.logical_or if op == "sum" else np.logical_and).reduce(columns))
    return np.asarray(UFUNCS[op].reduce(columns, dtype=kind))


def same_array(x: Array) -> Any:
    return x.copy()


def torch_tensor(x: Array) -> Any:
    return torch.from_numpy(x.view(np.uint8).copy()).view(getattr(torch, x.dtype.name)).reshape(x.shape)


def as_numpy(x: Any, like: Array) -> Array:
    return (
        x if isinstance(x, np.ndarray) else x.view(torch.uint8).numpy().view(like.dtype).reshape(like.shape)
    )


def libraries(dtype: str) -> Iterator[Callable[[Array], Any]]:
    yield same_array
    if torch is not None and hasattr(torch, dtype):
        yield torch_tensor


@np.errstate(all="ignore")
def every_cell() -> int:
    done = 0
    for dtype, op in offered():
        columns = [given(dtype, op, rank) for rank in range(pc.size())]
        want = expected(dtype, op, columns)
        mine = columns[pc.rank()]
        for make in libraries(dtype):
            x, out = make(mine), make(np.zeros_like(mine))
            assert pc.allreduce(x, op_called(op), out=out) is out
            for got in (out, pc.allreduce(x, op_called(op))):
                np.testing.assert_array_equal(as_numpy(got, want), want, err_msg=f"{dtype} {op} {make}")
            root = done % pc.size()
            x = pc.reduce(make(mine), op_called(op), root=root)
            np.testing.assert_array_equal(as_numpy(x, want), want if pc.rank() == root else mine)
            done += 1
    return done


@pytest.mark.parametrize("n", SIZES)
def test_every_operation_gives_what_numpy_gives(n: int) -> None:
    cells = len(offered())
    done = testing.run(every_cell, n, timeout_s=100)
    assert cells >= 150
    assert done == [sum(1 for dtype, _ in offered() for _ in libraries(dtype))] * n


def test_what_the_page_denies_is_refused(world_of_one: pc.Group) -> None:
    denied = [(dtype, op) for (dtype, op), there in table().items() if not there and dtype != "bytes"]
    assert len(denied) > 50
    for dtype, op in denied:
        x = np.zeros((3, 2), dtype_of(dtype))
        with pytest.raises(pc.Unsupported, match=f"cannot reduce {dtype} with {op}"):
            pc.allreduce(x, op_called(op))


def every_pair_of_float8() -> None:
    for name in FLOAT8:
        every = np.arange(256, dtype=np.uint8).view(dtype_of(name))
        a, b = np.repeat(every, 256), np.tile(every, 256)
        for op, ufunc in (("sum", np.add), ("prod", np.multiply)):
            with np.errstate(all="ignore"):
                want = ufunc(a, b)
            got = pc.allreduce((a, b)[pc.rank()].copy(), op)
            nan = np.isnan(want)
            np.testing.assert_array_equal(np.isnan(got), nan)
            np.testing.assert_array_equal(got.view(np.uint8)[~nan], want.view(np.uint8)[~nan])


def test_float8_converts_and_overflows_as_ml_dtypes_does() -> None:
    testing.run(every_pair_of_float8, 2)


def the_definitions() -> None:
    rank = pc.rank()
    for name in ("float32", "float64", *SHORT):
        kind = dtype_of(name)
        x = np.array([np.nan if rank == 1 else 1.0, -0.0 if rank == 0 else 0.0]).astype(kind)
        for op in ("min", "max"):
            got = pc.allreduce(x.copy(), op).astype(float)
            assert np.isnan(got[0]), (name, op)
            assert np.signbit(got[1]) == (op == "min"), (name, op)
        assert pc.allreduce(x.copy(), "land").astype(float)[0] == 1  # NaN is true
    flags = np.array([2, 0, 7], np.uint8).view(bool) if rank == 0 else np.zeros(3, bool)
    assert pc.allreduce(flags).view(np.uint8).tolist() == [1, 0, 1]
    # Of equal values, the smaller location. NaN wins, and of two NaNs the smaller location. -0 is
    # less than 0.
    pairs = np.array(
        [[5, 3 - rank], [np.nan if rank else -9, 7], [np.nan, 2 - rank], [-0.0 if rank else 0.0, rank]]
    )
    np.testing.assert_array_equal(
        pc.allreduce(pairs.copy(), "minloc"), [[5, 2], [np.nan, 7], [np.nan, 1], [0, 1]]
    )
    np.testing.assert_array_equal(
        pc.allreduce(pairs.copy(), "maxloc"), [[5, 2], [np.nan, 7], [np.nan, 1], [0, 0]]
    )
    largest = np.array([60000], np.float16)
    assert pc.allreduce(largest, pc.scaled("sum", 0.5)) == 60000  # a sum of the contributions would overflow
    third = np.array([1.0, 3.0], np.float32)
    np.testing.assert_array_equal(pc.allreduce(third, pc.scaled("sum", 1 / 3)), np.float32([1 / 3, 1]) * 2)
    product = pc.allreduce(np.array([1e200 + 1e200j, np.inf + 0j]), "prod")
    assert np.isnan(product[0].real)  # inf - inf is not recovered
    assert product[0].imag == np.inf


def test_nan_zero_truth_places_and_scale_are_as_defined() -> None:
    testing.run(the_definitions, 2)


RECORD = [("a", "f4"), ("b", "i8", (2,)), ("c", "S3")]
OPAQUE = [
    np.dtype(RECORD),
    np.dtype(RECORD, align=True),
    *map(np.dtype, ("M8[D]", "m8[ns]", "S5", "U3", "V7", "g", "G")),
    np.dtype(ml_dtypes.int4),
    np.dtype(ml_dtypes.float8_e3m4),
]


def opaque_array(dtype: np.dtype[Any], seed: int, count: int = 100) -> Array:
    """Fills all bytes, including the padding, which NumPy's copies omit."""
    raw = np.random.default_rng(seed).integers(0, 8, count * dtype.itemsize, np.uint8)
    return np.frombuffer(bytearray(raw), dtype)


def move_opaque() -> None:
    rank, last = pc.rank(), pc.size() - 1
    for i, dtype in enumerate(OPAQUE):
        want = opaque_array(dtype, i)
        x = opaque_array(dtype, i) if rank == last else np.zeros_like(want)
        assert pc.broadcast(x, root=last) is x
        assert x.tobytes() == want.tobytes(), dtype
        y = opaque_array(dtype, i) if rank == 0 else np.zeros_like(want)
        if rank == 0:
            pc.send(y, 1, tag=i)
        elif rank == 1:
            assert pc.recv(y, 0, tag=i).tobytes() == want.tobytes(), dtype
    assert pc.broadcast(np.zeros(0, RECORD)).size == 0


def test_every_other_numpy_dtype_is_moved_as_it_is() -> None:
    testing.run(move_opaque, 2)
    testing.run(move_opaque, 3)


def disagree_about_layouts() -> None:
    rank = pc.rank()
    for ours in (("M8[D]", "M8[s]"), ("f4,i4", "i4,f4"), ("S8", "M8[D]"), ("V8", "f8")):
        names = [str(np.dtype(name)) if name != "f8" else "float64" for name in ours]
        with pytest.raises(pc.CollectiveMismatch) as caught:
            pc.broadcast(np.zeros(3, ours[rank]))
        for name in names:
            assert f"broadcast {name}[3]" in str(caught.value)
    if rank == 0:
        pc.send(np.zeros(3, "S4"), 1)  # so small that it is sent before rank 1 can report anything
    else:
        with pytest.raises(pc.CollectiveMismatch):
            pc.recv(np.zeros(3, "U1"), 0)
    for factor in (0.5, 0.25):
        with pytest.raises(pc.CollectiveMismatch, match=r"scaled sum x0\.25"):
            pc.allreduce(np.ones(2), pc.scaled("sum", factor if rank == 0 else 0.75 - factor))


def test_ranks_with_other_records_or_another_factor_are_reported() -> None:
    testing.run(disagree_about_layouts, 2, env={"PYCOLLECTIVE_CHECK": "strict"})


def variable_width() -> Array:
    return np.array(["a", "bb"], np.dtypes.StringDType())


REFUSED: list[tuple[str, Any, type[Exception], str]] = [
    ("object", lambda: np.array([None]), pc.InvalidArgument, "dtype object"),
    ("object in record", lambda: np.zeros(2, "f4,O"), pc.InvalidArgument, "dtype .*'O'"),
    ("foreign date", lambda: np.zeros(2, ">M8[D]"), pc.InvalidArgument, "foreign byte order"),
    ("foreign text", lambda: np.zeros(2, ">U2"), pc.InvalidArgument, "foreign byte order"),
    ("foreign field", lambda: np.zeros(2, "f4,>i4"), pc.InvalidArgument, "foreign byte order"),
    (
        "foreign subarray",
        lambda: np.zeros(2, [("a", [("b", ">i4", (2,))])]),
        pc.InvalidArgument,
        "foreign byte",
    ),
]
if hasattr(np.dtypes, "StringDType"):
    REFUSED.append(("text of any width", variable_width, pc.InvalidArgument, "dtype StringDType"))


@pytest.mark.parametrize(
    ("make", "error", "words"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_what_cannot_be_moved_says_so(
    world_of_one: pc.Group, make: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        pc.broadcast(make())


def test_what_can_only_be_moved_is_not_reduced_and_is_named(world_of_one: pc.Group) -> None:
    for dtype in OPAQUE:
        with pytest.raises(
            pc.Unsupported,
            match=re.escape(f"x has dtype {str(dtype)[:100]}") + ".*, which can be moved but not",
        ):
            pc.allreduce(np.zeros(2, dtype))
    with pytest.raises(
        pc.InvalidArgument, match=re.escape("out has dtype datetime64[s], but x has datetime64[D]")
    ):
        pc.allreduce(np.zeros(2, "M8[D]"), out=np.zeros(2, "M8[s]"))


def test_pairs_lie_along_the_last_axis(world_of_one: pc.Group) -> None:
    for shape in ((), (4,), (2, 3)):
        with pytest.raises(pc.InvalidArgument, match="its last axis must have length 2"):
            pc.allreduce(np.zeros(shape), "minloc")
        with pytest.raises(pc.InvalidArgument, match="its last axis must have length 2"):
            pc.reduce(np.zeros(shape), "maxloc")
    assert pc.allreduce(np.ones((3, 4, 2)), "minloc").shape == (3, 4, 2)


def test_scaled_is_a_small_immutable_value(world_of_one: pc.Group) -> None:
    half = pc.scaled("sum", 0.5)
    assert (half.op, half.factor, repr(half)) == ("sum", 0.5, 'pycollective.scaled("sum", 0.5)')
    assert half == pc.scaled("add", np.float32(0.5)) != pc.scaled("sum", 0.25)
    assert half != 0.5
    assert len({half, pc.scaled("sum", 0.5)}) == 1
    assert pickle.loads(pickle.dumps(half)) == half
    with pytest.raises(AttributeError):
        half.factor = 2.0
    for wrong in ("max", "avg", "total"):
        with pytest.raises(pc.InvalidArgument, match='only "sum" can be scaled'):
            pc.scaled(wrong, 0.5)
    for factor in (np.nan, np.inf, -np.inf):
        with pytest.raises(pc.InvalidArgument, match="must be finite"):
            pc.scaled("sum", factor)
    for factor in ("2", None, 1j):
        with pytest.raises(TypeError, match="must be a real number"):
            pc.scaled("sum", factor)
    with pytest.raises(pc.InvalidArgument, match="computed in float32"):
        pc.allreduce(np.ones(2, np.float16), pc.scaled("sum", 1e300))
    with pytest.raises(pc.Unsupported, match="cannot reduce int64 with scaled sum"):
        pc.allreduce(np.ones(2, int), half)


def test_one_rank_alone_gets_what_a_reduction_gives(world_of_one: pc.Group) -> None:
    x = np.array([5, 0, -2])
    assert pc.allreduce(x, "lxor", out=np.empty_like(x)).tolist() == [1, 0, 1]
    assert pc.allreduce(np.array([3.0]), pc.scaled("sum", 2)).tolist() == [6]
    assert pc.reduce(np.array([3.0]), pc.scaled("sum", 2)).tolist() == [6]
    assert pc.allreduce(x).tolist() == [5, 0, -2]


@pytest.mark.skipif(torch is None, reason="needs torch")
def test_dlpack_describes_bool_and_float8_too(world_of_one: pc.Group) -> None:
    for name in ("bool", "bfloat16", *FLOAT8):
        tensor = torch.ones(3).to(getattr(torch, name))
        x = Dlpack(tensor)
        assert pc.broadcast(x) is x
        assert pc.allreduce(x, "land") is x
        assert tensor.float().tolist() == [1, 1, 1]
    with pytest.raises(pc.Unsupported, match="float8_e4m3fnuz"):
        pc.broadcast(torch.ones(3).to(torch.float8_e4m3fnuz))
