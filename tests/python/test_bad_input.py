"""What cannot be right is refused before anything is sent, with a message that says what to write instead."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from arrays import LIBRARIES

import pycollective as pc

each_library = pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)


def read_only(x: Any) -> Any:
    x.flags.writeable = False
    return x


NOT_ARRAYS = {
    "float": (3.5, "is a float, not an array"),
    "list": ([1.0, 2.0], "is a list, not an array"),
    "None": (None, "is a NoneType, not an array"),
    "str": ("abc", "is a str, not an array"),
    "scalar": (np.float32(1), "read-only"),
    "object": (np.ones(3, object), "has dtype object"),
    "text": (np.array(["a"]), "has dtype str"),
    "date": (np.array(["2020"], "M8[D]"), "has dtype datetime64"),
    "record": (np.zeros(2, "f4,i4"), "has dtype"),
    "foreign": (np.ones(3, ">f4"), r"foreign byte order: pass x\.astype"),
    "masked": (np.ma.ones(3), r"x\.filled"),
    "read-only": (read_only(np.ones(3)), "is read-only and allreduce writes it"),
    "bytes": (b"abc", "is read-only"),
    "reversed": (np.ones(4)[::-1], "not C-contiguous"),
    "column": (np.ones((3, 4))[:, 0], "not C-contiguous"),
    "broadcast": (np.broadcast_to(np.ones(3), (2, 3)), "is read-only"),
    "text buffer": (memoryview(bytearray(8)).cast("c")[::2], "not C-contiguous"),
}


@pytest.mark.parametrize("case", NOT_ARRAYS)
def test_what_is_no_sendable_array_is_refused(world_of_one: pc.Group, case: str) -> None:
    x, words = NOT_ARRAYS[case]
    with pytest.raises(pc.InvalidArgument, match=words) as error:
        pc.allreduce(x)
    assert str(error.value).startswith("allreduce: x ")


@each_library
def test_transposed_and_expanded_arrays_are_refused_with_the_copy_to_write(
    world_of_one: pc.Group, library: Any
) -> None:
    with pytest.raises(
        pc.InvalidArgument, match=r"not C-contiguous.*(ascontiguousarray\(x\)|x\.contiguous\(\))"
    ):
        pc.allreduce(library.transposed())
    with pytest.raises(pc.InvalidArgument, match="is expanded"):
        pc.broadcast(library.expanded())


@each_library
def test_memory_elsewhere_is_refused(world_of_one: pc.Group, library: Any) -> None:
    with pytest.raises(pc.CollectiveError, match="CPU memory|no plain memory"):
        pc.allreduce(library.on_other_device())


def test_other_devices_and_unknown_dtypes_are_unsupported(world_of_one: pc.Group) -> None:
    with pytest.raises(pc.Unsupported, match="device 2:0"):
        pc.allreduce(LIBRARIES[0].on_other_device())
    with pytest.raises(pc.Unsupported, match="float(96|128)"):
        pc.allreduce(np.ones(3, np.longdouble))


@each_library
def test_out_must_fit_x(world_of_one: pc.Group, library: Any) -> None:
    x = library.make([1, 2, 3, 4], "float32")
    with pytest.raises(pc.InvalidArgument, match=r"out has shape \(2,\), but x has \(4,\)"):
        pc.allreduce(x, out=library.make([1, 2], "float32"))
    with pytest.raises(pc.InvalidArgument, match=r"out has shape \(2, 2\), but x has \(4,\)"):
        pc.allreduce(x, out=library.make([[1, 2], [3, 4]], "float32"))
    with pytest.raises(pc.InvalidArgument, match="out has dtype float64, but x has float32"):
        pc.allreduce(x, out=library.make([1, 2, 3, 4], "float64"))
    with pytest.raises(pc.InvalidArgument, match="overlaps x in part"):
        pc.allreduce(x[:2], out=x[1:3])
    pc.allreduce(x[:2], out=x[2:])


def test_only_what_is_written_must_be_writable(world_of_one: pc.Group) -> None:
    x = read_only(np.ones(3))
    pc.broadcast(x, root=0)
    with pytest.raises(pc.InvalidArgument, match="reduce: x is read-only"):
        pc.reduce(x, root=0)
    with pytest.raises(pc.InvalidArgument, match="allreduce: out is read-only"):
        pc.allreduce(np.ones(3), out=x)


BAD_CALLS = {
    "op": (
        lambda x: pc.allreduce(x, "total"),
        pc.InvalidArgument,
        'op "total" is not one of sum, prod, min, max, avg',
    ),
    "op type": (lambda x: pc.allreduce(x, 1), TypeError, "op must be a string"),
    "root": (lambda x: pc.broadcast(x, root=1), pc.InvalidArgument, "root must be between 0 and 0, not 1"),
    "huge root": (lambda x: pc.reduce(x, root=1 << 80), pc.InvalidArgument, "root must be between 0 and 0"),
    "root type": (lambda x: pc.broadcast(x, root="0"), TypeError, "root must be an integer, not str"),
    "tag": (
        lambda x: pc.send(x, 0, tag=-1),
        pc.InvalidArgument,
        "tag must be between 0 and 4294967295, not -1",
    ),
    "self": (lambda x: pc.send(x, 0), pc.InvalidArgument, "itself"),
    "self recv": (lambda x: pc.recv(x, 0), pc.InvalidArgument, "itself"),
    "timeout": (
        lambda x: pc.allreduce(x, timeout=-1),
        pc.InvalidArgument,
        "timeout must be a number of seconds",
    ),
    "nan": (
        lambda x: pc.barrier(timeout=float("nan")),
        pc.InvalidArgument,
        "timeout must be a number of seconds",
    ),
    "timeout type": (
        lambda x: pc.allreduce(x, timeout="3"),
        TypeError,
        "timeout must be a number of seconds or None, not str",
    ),
    "no array": (lambda x: pc.allreduce(), TypeError, "missing required argument 'x'"),
    "too many": (lambda x: pc.allreduce(x, "sum", x), TypeError, "at most 2 positional arguments but 3"),
    "twice": (lambda x: pc.allreduce(x, x=x), TypeError, "multiple values for argument 'x'"),
    "unknown": (lambda x: pc.allreduce(x, peer=1), TypeError, "unexpected keyword argument 'peer'"),
    "explain": (lambda x: pc.explain("allgather"), pc.InvalidArgument, '"allgather" is not one of allreduce'),
    "average of integers": (lambda x: pc.allreduce(np.ones(2, int), "avg"), pc.Unsupported, "int64"),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_wrong_arguments_are_refused(world_of_one: pc.Group, case: str) -> None:
    call, kind, words = BAD_CALLS[case]
    with pytest.raises(kind, match=words):
        call(np.ones(3))


BAD_WORLDS = {
    "partial": (dict(rank=0), "needs all three"),
    "no address": (dict(rank=0, size=2), "needs all three"),
    "rank": (dict(address="127.0.0.1:1", rank=2, size=2), "count from 0"),
    "size": (dict(address="127.0.0.1:1", rank=0, size=0), "count from 0"),
    "no port": (dict(address="127.0.0.1", rank=0, size=2), "host:port"),
    "port": (dict(address="127.0.0.1:70000", rank=0, size=2), "host:port"),
    "wildcard": (dict(address="0.0.0.0:4000", rank=0, size=2), "by which the others reach"),
    "timeout": (dict(timeout=0), "timeout must be a positive number"),
    "negative timeout": (dict(timeout=-1), "0 or more, not -1"),
    "too many": (dict(address="127.0.0.1:4000", rank=0, size=2**40), "at most 65535 ranks"),
}


@pytest.mark.parametrize("case", BAD_WORLDS)
def test_a_world_that_cannot_be_is_refused(case: str) -> None:
    arguments, words = BAD_WORLDS[case]
    with pytest.raises(pc.InvalidArgument, match=words):
        pc.init(**arguments)
    assert not pc.is_initialized()


BAD_WORLD_TYPES: dict[str, tuple[dict[str, Any], str]] = {
    "address": (dict(address=5, rank=0, size=2), "address must be a string"),
    "rank": (dict(address="127.0.0.1:4000", rank=0.0, size=2), "integer"),
    "timeout": (dict(timeout="5"), "timeout must be a number of seconds or None, not str"),
}


@pytest.mark.parametrize("case", BAD_WORLD_TYPES)
def test_arguments_of_init_of_another_type_are_refused(case: str) -> None:
    arguments, words = BAD_WORLD_TYPES[case]
    with pytest.raises(TypeError, match=words):
        pc.init(**arguments)
    assert not pc.is_initialized()


def test_wrong_arguments_of_shutdown_leave_the_world_as_it_was(world_of_one: pc.Group) -> None:
    with pytest.raises(TypeError, match="timeout must be a number of seconds or None, not str"):
        pc.shutdown(timeout="5")  # type: ignore[arg-type]
    with pytest.raises(pc.InvalidArgument, match="0 or more, not -5"):
        pc.shutdown(timeout=-5)
    assert pc.world() is world_of_one


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(pc.Unsupported, match="'mpi' is not one of auto, tcp"):
        pc.init(backend="mpi")


def test_a_backend_that_is_named_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYCOLLECTIVE_TRANSPORT", "carrier pigeon")
    with pytest.raises(pc.InvalidArgument, match="PYCOLLECTIVE_TRANSPORT"):
        pc.init()
    for backend in ("auto", "tcp"):
        pc.init(backend=backend)
        pc.shutdown()


def test_a_second_init_is_refused(world_of_one: pc.Group) -> None:
    with pytest.raises(pc.InvalidArgument, match=r"pycollective\.shutdown\(\) first"):
        pc.init()
    assert pc.world() is world_of_one
