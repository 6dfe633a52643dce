"""Invalid arguments are refused at once, with what to write instead; nothing else changes.

The rows of one table are played in a world of one and in one of three ranks, by all ranks and by
the last rank alone (a refused call gets no number, so the other ranks need not notice). To add a
case, add a row.
"""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from arrays import CopiedDlpack, Dlpack, FarAway, OldDlpack, torch

import pycollective as pc
from pycollective import testing

SOON_S = 5.0  # a refusal takes microseconds, on a loaded machine a little more
Invalid = pc.InvalidArgument


def six() -> np.ndarray[Any, Any]:
    return np.arange(6.0)


@dataclasses.dataclass(frozen=True)
class Row:
    """`call(given())` raises exactly `error`.

    Its message matches `words`, in which LAST is the last rank.
    """

    name: str
    call: Callable[[Any], object]
    error: type[BaseException]
    words: str
    given: Callable[[], Any] = six


@dataclasses.dataclass(frozen=True)
class Good:
    """`call(given())` on all ranks reads the first and writes the second, which is then `right`."""

    name: str
    call: Callable[[Any], object]
    right: Callable[[Any, int], object]  # takes the result and the number of ranks
    given: Callable[[], tuple[Any, Any]]


def no_array(name: str, given: Callable[[], Any], words: str, error: type[BaseException] = Invalid) -> Row:
    return Row(name, lambda x: pc.allreduce(x), error, f"^allreduce: .*{words}", given)


def strided(shape: tuple[int, ...], *strides: int) -> np.ndarray[Any, Any]:
    return np.lib.stride_tricks.as_strided(six(), shape, strides)


def read_only(x: Any) -> Any:
    x.flags.writeable = False
    return x


def released() -> memoryview:
    x = memoryview(bytearray(8))
    x.release()
    return x


def new_style_dtype() -> Any:
    from numpy._core import _multiarray_umath

    dtype = _multiarray_umath._get_sfloat_dtype()(1.0)
    assert dtype.num == -1
    return np.zeros(1).astype(dtype)


def old_style_dtype() -> Any:
    from numpy._core import _rational_tests

    return np.array([_rational_tests.rational(1, 2)])


class Reshaping(Dlpack):
    """Changes another array when its memory is requested."""

    def __init__(self, other: np.ndarray[Any, Any]) -> None:
        super().__init__(np.ones(3))
        self.other = other

    def __dlpack__(self, **how: Any) -> Any:
        self.other.resize((1, 1), refcheck=False)
        return super().__dlpack__(**how)


def reshaped_meanwhile() -> tuple[Any, Any]:
    x = np.ones(1)
    return x, Reshaping(x)


EXPANDED = r"is expanded: several of its elements share one place in memory\. Pass a copy"

HUGE = Row(
    "huge number",
    lambda x: pc.allreduce(x),
    Invalid,
    "^allreduce: .*does not fit into 64 bits",
    lambda: 1 << 70,
)
NO_ARRAYS = [
    no_array("None", lambda: None, "is a NoneType, not an array"),
    no_array("str", lambda: "abc", "is a str, not an array"),
    no_array("bytes", lambda: b"abc", "is read-only"),
    no_array("module", lambda: np, "is a module, not an array"),
    no_array("class", lambda: np.ndarray, "does not say where it lies"),
    no_array("ragged list", lambda: [[1.0, 2.0], [3.0]], r"\[0\]\[0\] is a number among arrays"),
    no_array("array and number", lambda: [six(), 3.0], r"\[1\] is a number among arrays"),
    no_array(
        "overlapping members", lambda: (x := six(), [x[:4], x[2:]])[1], r"x\[0\] and x\[1\] share memory"
    ),
    no_array("one array twice", lambda: [six()] * 2, r"x\[0\] and x\[1\] share memory"),
    no_array("list with a read-only array", lambda: [six(), read_only(six())], r"x\[1\] is read-only"),
    no_array("list with text", lambda: [six(), "abc"], r"\[1\]: str is no array"),
    no_array("keys without an order", lambda: {1: six(), "a": six()}, "the keys of x cannot be sorted"),
    no_array("set", lambda: {1.0}, "is a set, not an array"),
    no_array(
        "generator", lambda: (each for each in [np.ones(1)]), r"is a generator, not an array: pass list\(x\)"
    ),
    no_array("values", lambda: {1: np.ones(1)}.values(), r"is a dict_values, not an array: pass list\(x\)"),
    no_array("masked", lambda: np.ma.ones(3), r"x\.filled"),
    no_array("released", released, "released memoryview"),
    no_array("on a GPU", FarAway, "lies on GPU 0, and", pc.Unsupported),
    no_array("copying exporter", lambda: CopiedDlpack(six()), r"\(CopiedDlpack\) .* copy"),
    no_array("exporter before DLPack 1.0", lambda: OldDlpack(six()), r"DLPack older than 1\.0"),
]

DTYPES = [
    no_array("object", lambda: np.ones(3, object), "has dtype object"),
    no_array("text", lambda: np.array(["a"]), "has dtype <U1, which can be moved but not", pc.Unsupported),
    no_array("date", lambda: np.array(["2020"], "M8[D]"), "has dtype datetime64", pc.Unsupported),
    no_array("duration", lambda: np.zeros(3, "m8[s]"), "has dtype timedelta64", pc.Unsupported),
    no_array("record", lambda: np.zeros(2, "f4,i4"), "has dtype", pc.Unsupported),
    no_array("raw bytes", lambda: np.zeros(3, "V4"), r"has dtype \|V4", pc.Unsupported),
    no_array("foreign byte order", lambda: np.ones(3, ">f4"), r"foreign byte order: pass x\.astype"),
    no_array("long double", lambda: np.ones(3, np.longdouble), "has dtype float(96|128)", pc.Unsupported),
    no_array("new user dtype", new_style_dtype, "has dtype", pc.Unsupported),
    no_array("old user dtype", old_style_dtype, "has dtype", pc.Unsupported),
    Row("smallest complex", lambda x: pc.allreduce(x, "min"), pc.Unsupported, "cannot reduce complex128 with min",
        lambda: np.ones(3, complex)),
    Row("average of integers", lambda x: pc.allreduce(x, "avg"), pc.Unsupported,
        "int64 .* convert to a float dtype first, or use sum and divide",
        lambda: np.ones(2, int)),
]  # fmt: skip

LAYOUTS = [
    no_array("read-only", lambda: read_only(six()), "is read-only and allreduce writes it: pass a copy, or out="),
    no_array("rows that overlap", lambda: strided((3, 4), 8, 8), EXPANDED),
    no_array("repeated by strides", lambda: strided((4,), 0), EXPANDED),
    no_array("repeated by broadcast_to", lambda: np.broadcast_to(six(), (2, 6)), "is read-only"),
    Row("reduce of read-only", lambda x: pc.reduce(x, root=pc.rank()), Invalid, "reduce: x is read-only",
        lambda: read_only(six())),
    Row("recv into read-only", lambda x: pc.recv(x, pc.size() - 1 - pc.rank()), Invalid,
        "recv: x is read-only|itself", lambda: read_only(six())),
]  # fmt: skip


def out(name: str, given: Callable[[], tuple[Any, Any]], words: str) -> Row:
    return Row(f"out {name}", lambda xs: pc.allreduce(xs[0], out=xs[1]), Invalid, words, given)


OUTS = [
    out("shorter", lambda: (six(), np.ones(2)), r"out has shape \(2,\), but x has \(6,\)"),
    out(
        "of another shape", lambda: (six(), six().reshape(2, 3)), r"out has shape \(2, 3\), but x has \(6,\)"
    ),
    out("of another dtype", lambda: (six(), np.ones(6, "f4")), "out has dtype float32, but x has float64"),
    out("overlapping", lambda: (x := six(), (x[:4], x[1:5]))[1], "overlaps x in part"),
    out(
        "read-only",
        lambda: (six(), read_only(six())),
        "out is read-only and allreduce writes it: pass a copy$",
    ),
    out("repeated", lambda: (np.ones(4), strided((4,), 0)), f"out of shape .* {EXPANDED}"),
    out("of foreign byte order", lambda: (six(), np.ones(6, ">f8")), "out has foreign byte order"),
    out("list", lambda: (six(), [0.0] * 6), "out is no array: its value cannot be replaced"),
    out("copying", lambda: (np.ones(3), CopiedDlpack(np.ones(3))), "allreduce: out .* copy"),
    out("that reshapes x", reshaped_meanwhile, r"out has shape \(3,\), but x has \(1, 1\)"),
]

ARGUMENTS = [
    Row("op", lambda x: pc.allreduce(x, "total"), Invalid, 'op "total" is not one of sum, prod, min, max, avg'),
    Row("op in capitals", lambda x: pc.allreduce(x, "SUM"), Invalid, 'op "SUM" is not one of .*: write op="sum"$'),
    Row("op of torch", lambda x: pc.allreduce(x, "PRODUCT"), Invalid, ': write op="prod"$'),
    Row("op type", lambda x: pc.allreduce(x, 1), TypeError, 'op must be a string .*, not int: write op="sum"'),
    Row("op None", lambda x: pc.reduce(x, None), TypeError, "op must be a string"),
    Row("op that is no Unicode", lambda x: pc.allreduce(x, "\udcff"), Invalid, "is not one of"),
    Row("root n", lambda x: pc.broadcast(x, root=pc.size()), Invalid, "root must be between 0 and LAST, not "),
    Row("root -1", lambda x: pc.reduce(x, root=-1), Invalid, "root must be between 0 and LAST, not -1"),
    Row("huge root", lambda x: pc.reduce(x, root=1 << 80), Invalid, "root must be between 0 and LAST"),
    Row("root in text", lambda x: pc.broadcast(x, root="0"), TypeError, "root must be an integer, not str"),
    Row("root float", lambda x: pc.broadcast(x, root=0.0), TypeError, "root must be an integer, not float"),
    Row("root float of NumPy", lambda x: pc.broadcast(x, root=np.float64(0)), TypeError, "root must be an integer"),
    Row("root None", lambda x: pc.broadcast(x, root=None), TypeError, "root must be an integer, not NoneType"),
    Row("peer n", lambda x: pc.send(x, pc.size()), Invalid, "send: peer must be between 0 and LAST, not "),
    Row("peer -1", lambda x: pc.recv(x, -1), Invalid, "recv: peer must be between 0 and LAST, not -1"),
    Row("peer in text", lambda x: pc.send(x, "1"), TypeError, "peer must be an integer, not str"),
    Row("tag -1", lambda x: pc.send(x, 0, tag=-1), Invalid, "tag must be between 0 and 4294967295, not -1"),
    Row("tag 2^32", lambda x: pc.recv(x, 0, tag=1 << 32), Invalid, "tag must be between 0 and 4294967295"),
    Row("tag float", lambda x: pc.send(x, 0, tag=1.5), TypeError, "tag must be an integer, not float"),
    Row("timeout -1", lambda x: pc.allreduce(x, timeout=-1), Invalid, "timeout must be a number of seconds, 0 or"),
    Row("timeout nan", lambda x: pc.barrier(timeout=float("nan")), Invalid, "timeout must be a number of seconds"),
    Row("timeout in text", lambda x: pc.allreduce(x, timeout="3"), TypeError,
        "timeout must be a number of seconds or None, not str"),
    Row("no array", lambda x: pc.allreduce(), TypeError, "missing required argument 'x'"),
    Row("too many", lambda x: pc.allreduce(x, "sum", x), TypeError,
        "at most 2 positional arguments but 3 were given. By keyword: out="),
    Row("twice", lambda x: pc.allreduce(x, x=x), TypeError, "multiple values for argument 'x'"),
    Row("unknown", lambda x: pc.allreduce(x, peer=1), TypeError, "unexpected keyword argument 'peer'"),
    Row("out of broadcast", lambda x: pc.broadcast(x, out=x), TypeError, "unexpected keyword argument 'out'"),
    Row("explain", lambda x: pc.explain("allmerge"), Invalid, '"allmerge" is not one of allreduce'),
    Row("second init", lambda x: pc.init(timeout=17), Invalid, r"now timeout=17.*\.shutdown\(\) first"),
    Row("backend", lambda x: pc.init(backend="mpi"), Invalid, r"shutdown\(\) first"),
    Row("timeout of shutdown", lambda x: pc.shutdown(timeout=-5), Invalid, "0 or more, not -5"),
    Row("timeout of shutdown in text", lambda x: pc.shutdown(timeout="5"), TypeError, "or None, not str"),
]  # fmt: skip


def grown() -> Any:
    return torch.ones(3, requires_grad=True) * 2


def by_strides(x: Any) -> Any:
    return torch.as_strided(x, (3,), (1,))


def complex_ones() -> Any:
    return torch.ones(3, dtype=torch.complex64)


def wrapper() -> Any:
    class Wrapper(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise AssertionError("must not be asked")

    return torch.Tensor._make_wrapper_subclass(Wrapper, (3,))


TORCH = [
    no_array("torch expanded", lambda: torch.ones(1).expand(4), EXPANDED),
    no_array("torch non-leaf", grown, r"requires grad.*x\.detach\(\)\.clone\(\)"),
    no_array("torch sparse", lambda: torch.eye(3).to_sparse(), "has no plain memory"),
    no_array("torch meta", lambda: torch.ones(3, device="meta"), "no plain memory"),
    no_array("torch zero tensor", lambda: torch._efficientzerotensor(3), "has no memory of its own"),
    no_array("torch conjugated", lambda: complex_ones().conj(), "lazily"),
    no_array("torch negated", lambda: complex_ones().conj().imag[:1], "lazily"),
    no_array("torch negated by strides", lambda: by_strides(complex_ones().conj().imag), "lazily"),
    no_array("torch float8", lambda: torch.ones(3).to(torch.float8_e5m2fnuz), "float8_e5m2fnuz", pc.Unsupported),
    no_array("torch wrapper", wrapper, "wraps other tensors"),
    out("torch shorter", lambda: (torch.ones(4), torch.ones(2)), r"out has shape \(2,\), but x has \(4,\)"),
    out("torch of another shape", lambda: (torch.ones(4), torch.ones(2, 2)), r"out has shape \(2, 2\), but x"),
    out("torch of another dtype", lambda: (torch.ones(4), torch.ones(4).double()), "out has dtype float64, but"),
    out("torch overlapping", lambda: (x := torch.ones(6), (x[:4], x[1:5]))[1], "overlaps x in part"),
    out("torch non-leaf", lambda: (torch.ones(3), grown()), "allreduce: out requires grad"),
    out("torch expanded", lambda: (torch.ones(4), torch.ones(1).expand(4)), EXPANDED),
]  # fmt: skip

ROWS = NO_ARRAYS + DTYPES + LAYOUTS + OUTS + ARGUMENTS + (TORCH if torch is not None else [])


def is_sum(result: Any, size: int) -> bool:
    return np.array_equal(result, six()[: len(result)] * size)


GOOD = [
    Good("out beside x", lambda xs: pc.allreduce(xs[0], out=xs[1]), is_sum,
         lambda: (x := six(), (x[:3], x[3:]))[1]),
    Good("x read-only, with out", lambda xs: pc.allreduce(xs[0], out=xs[1]), is_sum,
         lambda: (read_only(six()), np.zeros(6))),
    Good("x a copying exporter, with out", lambda xs: pc.allreduce(xs[0], out=xs[1]), is_sum,
         lambda: (CopiedDlpack(six()), np.zeros(6))),
    Good("x from before DLPack 1.0, with out", lambda xs: pc.allreduce(xs[0], out=xs[1]), is_sum,
         lambda: (OldDlpack(six()), np.zeros(6))),
    Good("x bytes, with out", lambda xs: pc.allreduce(xs[0], out=xs[1]),
         lambda result, size: result.tolist() == [size, 2 * size],
         lambda: (b"\1\2", np.zeros(2, np.uint8))),
    Good("timeout inf", lambda xs: pc.allreduce(xs[0], out=xs[1], timeout=float("inf")), is_sum,
         lambda: (six(), np.zeros(6))),
    Good("no elements", lambda xs: pc.allreduce(xs[0], out=xs[1]),
         lambda result, size: result.shape == (0, 3), lambda: (np.ones((0, 3)), np.ones((0, 3)))),
]  # fmt: skip
if torch is not None:
    GOOD += [
        Good("torch non-leaf, with out", lambda xs: pc.allreduce(xs[0], out=xs[1]),
             lambda result, size: result.tolist() == [2 * size] * 3, lambda: (grown(), torch.empty(3))),
        Good("torch out beside x", lambda xs: pc.allreduce(xs[0], out=xs[1]),
             lambda result, size: result.tolist() == [size] * 3, lambda: tuple(torch.ones(6).split(3))),
        Good("torch out for NumPy", lambda xs: pc.allreduce(xs[0], out=xs[1]), is_sum,
             lambda: (six(), torch.zeros(6).double())),
    ]  # fmt: skip


def image(x: Any) -> Any:
    """Returns all bits of what a row was given, including the gaps between its elements."""
    if isinstance(x, list | tuple):
        return [image(each) for each in x]
    if torch is not None and isinstance(x, torch.Tensor):
        plain = x.layout == torch.strided and x.device.type == "cpu" and type(x) is torch.Tensor
        return x._version, bytes(x.untyped_storage()) if plain and not x._is_zerotensor() else None
    if isinstance(x, np.ndarray):
        while isinstance(x.base, np.ndarray):
            x = x.base
        return x.tobytes()
    if isinstance(x, Dlpack):
        return x.x.tobytes()
    return x if isinstance(x, int | float | str | bytes | None) else None


def usable() -> str:
    """Returns "" if the group computes exactly."""
    x = six() * (pc.rank() + 1)
    total = pc.size() * (pc.size() + 1) // 2
    try:
        return "" if np.array_equal(pc.allreduce(x), six() * total) else f"the group then gives {x}"
    except pc.CollectiveError as error:
        return f"the group is not usable: {error}"


def refused(row: Row) -> str:
    """Returns what is wrong with the row's outcome on this rank, or ""."""
    x = row.given()
    before = image(x)
    began = time.monotonic()
    try:
        result = row.call(x)
    except BaseException as error:
        words = row.words.replace("LAST", str(pc.size() - 1))
        late = time.monotonic() - began
        if not re.search(words, str(error), re.DOTALL):
            return f"{type(error).__name__}: {error}\ndoes not match {words}"
        if type(error) is not row.error:
            return f"{type(error).__name__} and not {row.error.__name__}: {error}"
        if late > SOON_S:
            return f"took {late:.1f} s"
    else:
        return f"was accepted: {result!r}"
    return "" if image(x) == before else "the input was touched"


def accepted(row: Good) -> str:
    read, written = row.given()

    def bits() -> Any:  # of only the elements that are read, because what is written may be between them
        if isinstance(read, np.ndarray):
            return image(read.copy())
        return image(read.detach().clone() if torch is not None and torch.is_tensor(read) else read)

    before = bits()
    result = row.call((read, written))
    if result is not written or not row.right(result, pc.size()):
        return f"gave {result!r}"
    return "" if bits() == before else "the input was touched"


def play() -> dict[str, str]:
    """Returns what is wrong with each row on this rank.

    All ranks make the call, then the last one alone.
    """
    complaints = {row.name: [accepted(row), usable()] for row in GOOD}
    last = pc.rank() == pc.size() - 1
    for row in ROWS:
        complaints[row.name] = [refused(row), usable(), refused(row) if last else "", usable()]
    complaints[HUGE.name] = [refused(HUGE), usable()]  # what only all ranks together can detect
    return {name: "\n".join(filter(None, said)) for name, said in complaints.items()}


@pytest.fixture(scope="module", params=[1, 3], ids=["alone", "three"])
def complaints(request: pytest.FixtureRequest) -> list[dict[str, str]]:
    """Plays all rows in one world."""
    return testing.run(play, request.param, env={"PYCOLLECTIVE_TIMEOUT_S": "20"})


def test_the_names_of_the_rows_are_apart() -> None:
    assert len({row.name for row in [*ROWS, *GOOD]}) == len(ROWS) + len(GOOD)


@pytest.mark.parametrize(
    "name",
    [row.name for row in [*ROWS, HUGE]],
)
def test_bad_input_is_refused_and_nothing_happens(complaints: list[dict[str, str]], name: str) -> None:
    assert [each[name] for each in complaints] == [""] * len(complaints)


@pytest.mark.parametrize("name", [row.name for row in GOOD])
def test_unusual_input_that_is_right_is_accepted(complaints: list[dict[str, str]], name: str) -> None:
    assert [each[name] for each in complaints] == [""] * len(complaints)


def test_only_what_is_written_must_be_writable(world_of_one: pc.Group) -> None:
    x = read_only(np.ones(3))
    assert pc.broadcast(x, root=0) is x


SENDS = {
    "allreduce": pc.allreduce,
    "broadcast": pc.broadcast,
    "reduce": pc.reduce,
    "barrier": lambda x: pc.barrier(),
}
SENDS |= {"send": lambda x: pc.send(x, 0), "recv": lambda x: pc.recv(x, 0), "resync": lambda x: pc.resync()}
SENDS |= {
    "rank": lambda x: pc.rank(),
    "world": lambda x: pc.world(),
    "explain": lambda x: pc.explain("barrier"),
}


def without_a_world(name: str) -> str:
    x = six()
    try:
        SENDS[name](x)
    except pc.NotInitialized as error:
        said = re.search(r"pycollective\.init\(\)|shut down", str(error))
        return "" if said and np.array_equal(x, six()) else str(error)
    return "was accepted"


def before_and_after() -> list[str]:
    """Makes all calls without a world, before the first and between two worlds.

    Each world computes.
    """
    complaints = [f"{name} before init(): {without_a_world(name)}" for name in SENDS if without_a_world(name)]
    for _ in range(2):
        group = pc.init(timeout=20)
        complaints += [usable()] if usable() else []
        pc.shutdown()
        complaints += [
            f"{name} after shutdown(): {said}" for name in SENDS if (said := without_a_world(name))
        ]
        try:
            group.allreduce(six())
            complaints.append("the group of an old world was accepted")
        except pc.NotInitialized:
            pass
    return complaints


@pytest.mark.parametrize("ranks", [1, 3])
def test_without_a_world_every_call_says_so_and_a_world_may_follow(ranks: int) -> None:
    assert testing.run(before_and_after, ranks, init=False) == [[]] * ranks


# Arguments of init(): no world is created, and another init() may follow.
WORLDS: dict[str, tuple[dict[str, Any], type[BaseException], str]] = {
    "partial": (dict(rank=0), Invalid, "needs all three"),
    "no address": (dict(rank=0, size=2), Invalid, "needs all three"),
    "rank": (dict(address="127.0.0.1:1", rank=2, size=2), Invalid, "count from 0"),
    "negative rank": (dict(address="127.0.0.1:1", rank=-1, size=2), Invalid, "count from 0"),
    "size": (dict(address="127.0.0.1:1", rank=0, size=0), Invalid, "count from 0"),
    "no port": (dict(address="127.0.0.1", rank=0, size=2), Invalid, "host:port"),
    "port": (dict(address="127.0.0.1:70000", rank=0, size=2), Invalid, "host:port"),
    "wildcard": (dict(address="0.0.0.0:4000", rank=0, size=2), Invalid, "by which the others reach"),
    "timeout": (dict(timeout=0), Invalid, "timeout must be a positive number"),
    "negative timeout": (dict(timeout=-1), Invalid, "0 or more, not -1"),
    "timeout nan": (dict(timeout=float("nan")), Invalid, "0 or more, not nan"),
    "too many": (dict(address="127.0.0.1:4000", rank=0, size=2**40), Invalid, "at most 65535 ranks"),
    "backend": (dict(backend="mpi"), pc.Unsupported, "'mpi' is not one of auto, tcp"),
    "address type": (dict(address=5, rank=0, size=2), TypeError, "address must be a string"),
    "rank type": (
        dict(address="127.0.0.1:4000", rank=0.0, size=2),
        TypeError,
        r"rank=0.0.: rank must be an int, not float",
    ),
    "timeout type": (dict(timeout="5"), TypeError, "timeout must be a number of seconds or None, not str"),
}


@pytest.mark.parametrize("case", WORLDS)
def test_a_world_that_cannot_be_is_refused_and_another_may_follow(case: str) -> None:
    arguments, kind, words = WORLDS[case]
    began = time.monotonic()
    with pytest.raises(kind, match=words) as info:
        pc.init(**arguments)
    assert info.type is kind
    assert time.monotonic() - began < SOON_S
    assert not pc.is_initialized()
    pc.init()
    assert usable() == ""
    pc.shutdown()


def test_a_backend_that_is_named_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYCOLLECTIVE_TRANSPORT", "carrier pigeon")
    with pytest.raises(pc.InvalidArgument, match="PYCOLLECTIVE_TRANSPORT"):
        pc.init()
    for backend in ("auto", "tcp", "shm"):
        pc.init(backend=backend)
        pc.shutdown()
