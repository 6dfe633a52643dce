"""The objects' codec: every type is restored, and any bytes decode or are refused cheaply."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import enum
import tracemalloc
from typing import Any

import ml_dtypes
import msgpack
import numpy as np
import pytest
from arrays import torch
from raw_objects import raw, tag
from same_values import same

from pycollective.errors import InvalidArgument
from pycollective.objects import object_codec
from pycollective.objects.object_codec import Malformed

MOST = 1 << 30
UTC = datetime.timezone.utc
HERE = datetime.timezone(datetime.timedelta(hours=5, minutes=30))
MOMENT = datetime.datetime(2024, 2, 29, 12, 30, 59, 999_999)

VALUES: list[Any] = [
    None, True, False, 0, -1, 255, 2**63, -(2**63), 2**64 - 1, 2**64, -(2**63) - 1, 3**5000, 0.1,
    float("inf"), -0.0,
    1 + 2j, "", "text \u00e9 \U0001f600", "\ud83d", b"", b"\0\xff", bytearray(), bytearray(b"abc"),
    [], (), {}, set(), frozenset(), [()], ((1,), [2]), [1, [2, (3, {"k": None})]], {1, "a", (2, 3), 2.5},
    frozenset({frozenset({1}), ()}), {"a": 1, 2: b"b", None: 3, True: 4, 1.5: 5, b"k": 6},
    {(1, (2,)): [True]},
    {frozenset({1}): {2}, "x": ()}, {2**80: 1}, {datetime.date(2024, 1, 1): 1j}, {np.int64(3): 1},
    MOMENT, MOMENT.replace(tzinfo=UTC), MOMENT.replace(tzinfo=HERE), MOMENT.replace(fold=1),
    datetime.date.min,
    datetime.timedelta.min, datetime.timedelta.max, datetime.timedelta(microseconds=-1),
    np.arange(6).reshape(2, 3), np.zeros((0, 3), np.float32), np.array(1.5), np.float32(2.5), np.float64(0.1),
    np.array([1 + 2j]), np.array([True, False]), np.bool_(True), np.arange(10)[::2],
    np.arange(6).reshape(2, 3).T,
    np.arange(4, dtype=">i4"), np.array(["ab", "\u00e9"]), np.array([b"ab"]), np.str_("text"),
    np.bytes_(b"text"),
    np.array(["2024-01-01"], "M8[D]"), np.array([7], "m8[25s]"), np.datetime64("2024", "us"),
    np.broadcast_to(np.arange(3), (2, 3)),
    [np.arange(3), {"a": (np.arange(2), bytearray(b"x"), np.float16(1))}],
    np.ones(3, ml_dtypes.bfloat16), ml_dtypes.bfloat16(1.5), np.ones(2, ml_dtypes.float8_e5m2),
    np.ones(2, ml_dtypes.int4),
]  # fmt: skip
TENSORS: list[Any] = (
    []
    if torch is None
    else [
        torch.arange(6).reshape(2, 3), torch.arange(6).reshape(2, 3).T, torch.tensor(1.5), torch.zeros(0, 3),
        torch.ones(3, dtype=torch.bfloat16), torch.tensor([True]), torch.tensor([1 + 2j]).conj(), torch.ones(2).half(),
    ]
)  # fmt: skip


def coded(value: object) -> Any:
    return object_codec.encode(value, most_nbytes=MOST)


def back(value: object) -> Any:
    return object_codec.decode(coded(value))


def alike(a: Any, b: Any) -> bool:
    """Returns whether they are equal, with equal types of all parts."""
    if isinstance(a, dict) and type(b) is dict:
        return alike(list(a.items()), list(b.items()))
    if isinstance(a, (set, frozenset)):
        return type(a) is type(b) and a == b and set(map(type, a)) == set(map(type, b))
    if isinstance(a, (list, tuple)):
        return (
            type(a) is type(b) and len(a) == len(b) and all(alike(*pair) for pair in zip(a, b, strict=True))
        )
    if isinstance(a, datetime.datetime):
        return type(b) is datetime.datetime and (a, a.tzinfo, a.fold) == (b, b.tzinfo, b.fold)
    return same(a, b) and repr(a) == repr(b)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_every_value_comes_back_as_it_was(value: Any) -> None:
    assert alike(back(value), value)
    assert alike(back([value, {"k": (value,)}]), [value, {"k": (value,)}])


@pytest.mark.skipif(torch is None, reason="torch is not installed")
@pytest.mark.parametrize("number", range(len(TENSORS)))
def test_every_tensor_comes_back_as_it_was(number: int) -> None:
    value = TENSORS[number]
    got = back({"t": [value]})["t"][0]
    assert type(got) is torch.Tensor
    assert (got.dtype, got.shape) == (value.dtype, value.shape)
    assert torch.equal(got, value)
    got.zero_()  # it is writable


@pytest.mark.skipif(torch is None, reason="torch is not installed")
def test_a_tensor_of_a_gpu_comes_to_the_receivers_gpu_or_where_there_is_none_to_its_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = coded([torch.arange(6).reshape(2, 3), 1])
    with monkeypatch.context() as patch:
        patch.setattr(object_codec.arrays, "is_on_gpu", lambda x: True)
        data = coded([torch.arange(6).reshape(2, 3), 1])
    assert len(data) == len(plain)
    assert data.tobytes() != plain.tobytes()
    got, one = object_codec.decode(data.copy())
    assert (got.device.type, one) == ("cpu", 1)
    assert torch.equal(got, torch.arange(6).reshape(2, 3))
    moved = []
    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: True)
        patch.setattr(torch.cuda, "current_device", lambda: 3)
        patch.setattr(torch.Tensor, "to", lambda x, device: moved.append(device) or x)
        object_codec.decode(data.copy())
    assert moved == [torch.device("cuda", 3)]


def test_arrays_that_come_may_be_written_and_lie_where_their_elements_must() -> None:
    for got in back([np.arange(3, dtype=np.int8), np.arange(3.0), bytearray(b"x"), np.ones(2, complex)])[::1]:
        if isinstance(got, np.ndarray):
            assert got.flags.writeable
            assert got.flags.aligned


def nested(depth: int, kind: Any = list) -> Any:
    value: Any = kind()
    for _ in range(depth - 1):
        value = kind([value])
    return value


@pytest.mark.parametrize("kind", [list, tuple, frozenset])
def test_64_containers_inside_each_other_are_sent_and_not_one_more(kind: Any) -> None:
    assert back(nested(64, kind)) == nested(64, kind)
    assert back(nested(63, kind)) == nested(63, kind)
    with pytest.raises(InvalidArgument, match="nested more than 64 deep"):
        coded(nested(65, kind))
    endless: list[Any] = []
    endless.append({"again": endless})
    with pytest.raises(InvalidArgument, match=r"^obj\[0\]\['again'\]\[0\].* or holds itself"):
        coded(endless)


class Colour(enum.IntEnum):
    RED = 1


@dataclasses.dataclass
class Point:
    x: int


Pair = collections.namedtuple("Pair", "a b")


class Name(str):
    pass


class Loud:
    def __repr__(self) -> str:
        raise AssertionError("its repr is not requested")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"m": [1, 2, {"opt": Point(1)}]}, r"^obj\['m'\]\[2\]\['opt'\] is a test_object_codec\.Point, which cannot"),
        ((1, {2: {Point}}), r"^obj\[1\]\[2\]\{\.\.\.\} is a builtins\.type"),
        ({Loud(): object()}, r"^obj\.keys\(\)\[0\] is a test_object_codec\.Loud"),
        ({"k" * 99: object()}, r"^obj\['k{36}\.\.\.\] is a builtins\.object"),
        (Colour.RED, "Colour"), (Pair(1, 2), "Pair"), (Name("x"), "Name"), (collections.OrderedDict(), "OrderedDict"),
        (len, "builtin_function"), (memoryview(b"x"), "memoryview"), (range(3), "range"),
        (np.array([None]), "an array of object"), (np.zeros(2, "i4,f4"), r"an array of \[\('f0'"),
        (np.zeros(2, np.longdouble), "an array of float128"), (np.ma.masked_array([1]), "MaskedArray"),
        (np.bytes_(b"a\0"), "ends in zeros"),
        (MOMENT.replace(tzinfo=datetime.timezone(datetime.timedelta(0), "Here")), "astimezone"),
        (object_codec.tags.TUPLE, "Tag"), ([msgpack.ExtType(16, b"")], "ExtType"),
    ],
)  # fmt: skip
def test_what_cannot_be_sent_is_named_with_the_way_to_it(value: Any, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        coded(value)


@pytest.mark.skipif(torch is None, reason="torch is not installed")
def test_tensors_that_would_lose_something_are_refused() -> None:
    for value, words in (
        (torch.zeros(2, requires_grad=True), r"x\.detach\(\)"),
        (torch.zeros(2, device="meta"), r"x\.cpu\(\)"),
        (torch.zeros(2).to_sparse(), "sparse"),
        (torch.nn.Parameter(torch.zeros(2)), "Parameter"),
    ):
        with pytest.raises(InvalidArgument, match=words):
            coded([value])


def test_what_is_too_large_is_refused_before_it_is_copied() -> None:
    expanded = np.broadcast_to(np.float64(1), (1 << 40,))
    with pytest.raises(InvalidArgument, match="max_nbytes=1000"):
        object_codec.encode([1, expanded], most_nbytes=1000)
    with pytest.raises(InvalidArgument, match="more than max_nbytes=1000"):
        object_codec.encode(b"x" * 1000, most_nbytes=1000)
    data = coded({"x": np.arange(100)})
    assert object_codec.encode({"x": np.arange(100)}, most_nbytes=len(data)).tobytes() == data.tobytes()
    with pytest.raises(InvalidArgument, match="max_nbytes"):
        object_codec.encode({"x": np.arange(100)}, most_nbytes=len(data) - 1)


def test_pieces_behind_each_other_are_the_bytes_and_arrays_are_not_copied() -> None:
    for value in (*VALUES, *TENSORS, VALUES[:40]):
        found = list(object_codec.pieces(value, most_nbytes=MOST))
        assert b"".join(each.tobytes() for each in found) == coded(value).tobytes()
    x = np.arange(100)
    assert any(np.shares_memory(x, each) for each in object_codec.pieces([1, x], most_nbytes=MOST))
    with pytest.raises(InvalidArgument, match="max_nbytes=1000"):
        # raises at once, before the first piece is requested
        object_codec.pieces(np.zeros(1000), most_nbytes=1000)


def deep(depth: int) -> Any:
    return b"\x91" * depth + b"\xc0"


LIES: list[Any] = [
    np.zeros(0, np.uint8), np.zeros(7, np.uint8), np.full(8, 255, np.uint8), raw(b""), raw(b"\xc1"),
    raw(b"\x01\x02"),
    raw(None, b"more"), raw(deep(65)), raw(deep(500)), raw(deep(100_000)),
    raw(b"\xdd\xff\xff\xff\xff"), raw(b"\xdf\xff\xff\xff\xff"), raw(b"\xc6\xff\xff\xff\xff"),
    raw(b"\xdb\xff\xff\xff\xff"),
    raw(b"\xc9\xff\xff\xff\xff\x15"), raw(b"\x93\x01"), raw(b"\xa1\xff"), raw(b"\xd6\xff\x00"),
    raw(b"\xc7\x02\xff\x00\x00"),
    raw(tag(16)), raw([1, tag(16)]), raw({"k": tag(16)}), raw({"k": [1, tag(16)]}),
    raw([tag(16), tag(16)]),
    raw([tag(17), []]), raw([tag(19), 1]), raw([tag(19), [], 1]), raw({1: {2: tag(17)}}),
    raw([msgpack.ExtType(16, b"x")]),
    raw(msgpack.ExtType(99, b"")), raw(msgpack.ExtType(0, b"short")), raw(msgpack.ExtType(2, b"\xff" * 21)),
    raw(msgpack.ExtType(3, b"\0\0\0\0")), raw(msgpack.ExtType(3, b"\xff\xff\xff\xff")),
    raw(msgpack.ExtType(4, b"\xff\xff\xff\x7f" * 3)),
    raw([tag(20), 1 << 60]), raw([tag(20), -1]), raw([tag(20)]), raw([tag(20), "x"]),
    raw([tag(20), 1.0], b"\0" * 32),
    raw([tag(21)]), raw([tag(21), "<f8", 1 << 62]), raw([tag(21), "<f8", 1 << 32, 1 << 32]),
    raw([tag(21), "<f8", -1]),
    raw([tag(21), "<f8", 0, 1 << 62, 1 << 62]), raw([tag(21), "<f8", *[1] * 70], b"\0" * 32),
    raw([tag(21), "|O", 1], b"\0" * 32),
    raw([tag(21), "O", 0]), raw([tag(21), "|V8", 1], b"\0" * 32), raw([tag(21), "<f8,<f8", 0]),
    raw([tag(21), "<U0", 5]),
    raw([tag(21), "<M8[zz]", 0]), raw([tag(21), 3, 1]), raw([tag(21), [], 1]), raw([tag(21), "finfo", 0]),
    raw([tag(21), "|b1", 1], b"\2" * 32), raw([tag(21), "<U1", 1], b"\xff" * 32),
    raw([tag(21), "<f8", "1"]),
    raw([tag(22), "<f8", b"short"]), raw([tag(22), "<f8", b"long" * 3]), raw([tag(22), "<f8", "text"]),
    raw([tag(22), "<f8"]),
    raw([tag(23), "float32", 1 << 62]), raw([tag(23), "load", 1]), raw([tag(23), "__builtins__"]),
    raw([tag(23), "float32", True]),
    raw([tag(23), "float32", 0, 1 << 62, 1 << 62]), raw([tag(23), "bool", 1], b"\2" * 32),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(LIES)))
def test_bytes_that_claim_what_is_not_there_are_refused(number: int) -> None:
    with pytest.raises(Malformed):
        object_codec.decode(LIES[number])


def peak_nbytes(data: Any) -> int:
    """Returns the peak memory of decoding."""
    tracemalloc.start()
    try:
        object_codec.decode(data)
    except Malformed:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


def test_lengths_inside_lengths_take_no_memory() -> None:
    """No length exceeds the number of bytes, so each alone passes; they add up to gigabytes."""
    count = 1 << 20
    data = raw((b"\xdd" + count.to_bytes(4, "big")) * 500 + b"\xc0" * count)
    assert peak_nbytes(data) < 4 * count


def test_no_bytes_whatever_do_anything_but_refuse_or_decode() -> None:
    good = [coded(value) for value in (*VALUES, *TENSORS, VALUES[:40])]
    for seed in range(2000):
        random = np.random.default_rng(seed)
        data = good[random.integers(len(good))].copy()
        for _ in range(random.integers(1, 4)):
            data[random.integers(len(data))] = random.integers(256)
        if seed % 3 == 0:
            data = data[: random.integers(len(data))].copy()
        if seed % 7 == 0:
            data = raw(random.integers(0, 256, random.integers(1, 200), np.uint8).tobytes())
        assert peak_nbytes(data) < 200 * len(data) + (1 << 17), seed
