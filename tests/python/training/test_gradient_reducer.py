"""GradientReducer: gradients of any library, in buckets, equal to those of one process."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pycollective as pc
from pycollective import testing
from pycollective.training.gradients.layout import Slot, cut
from pycollective.training.gradients.reducer import GradientReducer

SHAPES = {"a": (3, 2), "b": (), "none": (0, 4), "c": (7,), "d": (2, 2, 2), "e": (50,)}
DTYPES = {"a": "f4", "b": "f8", "none": "f4", "c": "f8", "d": "f4", "e": "f4"}


def parameters() -> dict[str, Any]:
    return {name: np.zeros(SHAPES[name], DTYPES[name]) for name in SHAPES}


def gradient(name: str, rank: int, step: int) -> Any:
    """Returns integers with an integral mean over the ranks."""
    count = int(np.prod(SHAPES[name]))
    values = pc.size() * (np.arange(count) % 11 - 5 + 3 * rank * step)
    return values.reshape(SHAPES[name]).astype(DTYPES[name])


def mean(name: str, step: int, among: Any) -> Any:
    return sum((gradient(name, rank, step) for rank in among), gradient(name, 0, 0) * 0) / pc.size()


def exact_steps() -> None:
    rank, size = pc.rank(), pc.size()
    names = [*SHAPES]
    reducer = GradientReducer(parameters(), bucket_nbytes=48, first_bucket_nbytes=16)
    assert len(reducer.buckets) > 3
    for step in range(3):
        order = names[rank:] + names[:rank]  # another order on every rank
        order = order if step else [name for name in order if (name == "c") <= (rank == 0)]
        for name in order:
            mine = gradient(name, rank, step)
            if name == "d":
                reducer.view("d")[...] = mine
                mine = reducer.view("d")
            reducer.ready(name, mine)
        assert reducer.missing() == ([] if step or rank == 0 else ["c"])
        reduced = reducer.finish()
        assert [*reduced] == [name for bucket in reducer.buckets for name in bucket]
        for name in names:
            among = [0] if step == 0 and name == "c" else range(size)
            assert np.array_equal(reduced[name], mean(name, step, among)), (name, step)
            assert reduced[name].dtype == DTYPES[name]
            assert reduced[name] is reducer.view(name)
    again = reducer.reduce(reduced)  # the views themselves: nothing is copied
    assert all(np.array_equal(again[name], mean(name, 2, range(size))) for name in names)
    rng = np.random.default_rng(0)
    every = rng.standard_normal((size, 7))
    assert np.allclose(reducer.reduce({"c": every[rank]})["c"], every.mean(0), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_gradients_are_bit_for_bit_those_of_one_process_in_whatever_order_they_come(n: int) -> None:
    testing.run(exact_steps, n)


def other_libraries() -> None:
    import jax.numpy as jnp
    import ml_dtypes
    from arrays import torch

    rank = pc.rank()
    reducer = GradientReducer([("w", jnp.zeros((2, 3))), ("b", jnp.zeros(3, jnp.bfloat16))])
    first = reducer.reduce({"w": jnp.full((2, 3), 2.0 * rank), "b": jnp.full(3, 4 * rank, jnp.bfloat16)})
    second = reducer.reduce({"w": jnp.ones((2, 3)), "b": np.ones(3, ml_dtypes.bfloat16)})
    assert isinstance(first["w"], type(jnp.zeros(1)))
    assert (first["w"] == 1).all(), "what was returned stays as it was"
    assert (first["b"] == 2).all()
    assert first["b"].dtype == jnp.bfloat16
    assert (second["w"] == 1).all()
    zero = jnp.zeros(2)
    GradientReducer({"x": zero, "y": zero})  # arrays that cannot be written may be the same
    if torch is None:
        return
    tensors = {"w": torch.zeros(2, 3), "h": torch.zeros(4, dtype=torch.bfloat16)}
    for compression in (None, "bf16", "f16"):
        reducer = GradientReducer(tensors, compression=compression, op="sum")
        columns = torch.full((3, 2), 3.0 + rank).T  # not contiguous
        got = reducer.reduce({"w": columns, "h": torch.ones(4, dtype=torch.bfloat16)})
        assert got["w"].dtype is torch.float32
        assert got["w"].tolist() == [[7.0] * 3] * 2
        assert got["h"].tolist() == [2.0] * 4


def test_jax_and_torch_keep_their_arrays() -> None:
    testing.run(other_libraries, 2)


def compressed() -> None:
    values = np.arange(-8, 8, dtype=np.float64)
    count = np.array([3], np.int64)
    for compression in ("bf16", "f16"):
        reducer = GradientReducer(
            {"x": values, "y": values.astype("f4"), "n": count}, compression=compression, op="sum"
        )
        got = reducer.reduce({"x": values, "y": values.astype("f4") * pc.rank(), "n": count})
        assert np.array_equal(got["x"], values * 2)
        assert np.array_equal(got["y"], values)
        assert got["n"] == 6
    mine = np.array([1 + 2.0**-12, 1e6], np.float32)
    got = GradientReducer({"x": mine}, compression="f16").reduce({"x": mine})
    assert got["x"].tolist() == [1.0, np.inf]
    assert mine[0] > 1, "what was given is read only"


def overflowing() -> None:
    from arrays import torch

    kinds = [np.zeros(2)] if torch is None else [np.zeros(2), torch.zeros(2, dtype=torch.float64)]
    for like in kinds:
        reducer = GradientReducer({"x": like, "n": np.zeros(2, np.int64)}, compression="f16", op="sum")
        for large in (1e6, 4e4):  # on one rank; the sum of two
            mine = like + (large if pc.rank() == 0 or large < 65504 else 1.0)
            with pytest.raises(pc.InvalidArgument, match='infinite in compression="f16".*\n.*"x" to "x"'):
                reducer.reduce({"x": mine})
        assert reducer.reduce({"x": like + 3})["x"].tolist() == [6, 6]
        bf16 = GradientReducer({"x": like}, compression="bf16", op="sum")
        assert bf16.reduce({"x": like + 1e6})["x"].tolist() == [1998848] * 2
    if torch is not None:
        model = pc.torch.DataParallel(torch.nn.Linear(2, 1).double(), compression="f16")
        with pytest.raises(pc.InvalidArgument, match='compression="f16"'):
            (model(torch.ones(1, 2, dtype=torch.float64)).sum() * 1e6).backward()


def test_float64_that_f16_cannot_hold_is_an_error_on_every_rank() -> None:
    testing.run(overflowing, 2)


def test_what_became_infinite_on_a_gpu_is_seen_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    from pycollective.training.gradients import compression

    torch = pytest.importorskip("torch")
    monkeypatch.setattr(compression, "is_on_gpu", lambda _: True)
    wire = torch.tensor([1.0, float("inf")], dtype=torch.float16)
    assert compression.overflowed(wire, "float64", "f16")
    assert not compression.overflowed(wire[:1], "float64", "f16")
    assert not compression.overflowed(wire, "float32", "f16")


def test_compression_rounds_on_the_wire_and_leaves_integers_alone() -> None:
    testing.run(compressed, 2)


def only_read() -> None:
    """It reads a gradient in any memory layout, also a large one."""
    rank, large = pc.rank(), 1 << 16
    reducer = GradientReducer([("b", np.zeros(3)), ("w", np.zeros((large, 1)))])
    for where in ("block", "gaps", "read-only"):
        w = np.full((large, 2 if where == "gaps" else 1), 2.0 * rank)[:, :1]
        w.flags.writeable = where != "read-only"
        assert reducer.ready("w", w) is reducer.view("w")
        got = reducer.finish()
        assert (got["w"] == 1).all()
        assert not got["b"].any()
        assert (w == 2 * rank).all()


def test_gradients_that_are_given_are_only_read() -> None:
    testing.run(only_read, 2)


def refusals() -> None:
    x = np.zeros(3)
    made: list[tuple[Callable[[], Any], str]] = [
        (lambda: GradientReducer([("a", x), ("a", np.zeros(2))]), 'two parameters are called "a"'),
        (lambda: GradientReducer({"a": x, "b": x}), '"a" and "b" are one array'),
        (lambda: GradientReducer({"a": 1.0}), "numpy.array"),
        (lambda: GradientReducer([x, x]), "pairs, and this one is a ndarray: give names"),  # type: ignore[list-item]
        (lambda: GradientReducer([(0, x)]), "the name 0 is of type int: names are texts"),  # type: ignore[list-item]
        (lambda: GradientReducer({0: x}), "the name 0 is of type int: names are texts"),  # type: ignore[dict-item]
        (lambda: GradientReducer({"a": None}), 'parameter "a"'),
        (lambda: GradientReducer({"a": x}, op="minloc"), "minloc"),
        (lambda: GradientReducer({"a": x}, bucket_nbytes=0), "at least one byte"),
        (lambda: GradientReducer({"a": x}, compression="f8"), "'bf16' or 'f16'"),  # type: ignore[arg-type]
    ]
    for call, why in made:
        with pytest.raises(pc.InvalidArgument, match=why):
            call()
    with pytest.raises(pc.Unsupported, match='parameter "n"'):
        GradientReducer({"n": np.zeros(2, np.int64)})  # has no avg
    reducer = GradientReducer({"a": x, "b": np.zeros((2, 2), "f4")})
    reducer.ready("a", np.full(3, pc.rank() * 2.0))
    given: list[tuple[Callable[[], Any], str]] = [
        (lambda: reducer.ready("a", np.ones(3)), "given before"),
        (lambda: reducer.reduce({"a": np.ones(3)}), "given before"),
        (lambda: reducer.ready("b", np.ones((2, 2))), r'"b" float32\[2, 2\].*float64\[2, 2\]'),
        (lambda: reducer.ready("b", np.ones(4, "f4")), r"float32\[4\]"),
        (lambda: reducer.ready("c", x), 'no parameter "c"'),
        (lambda: reducer.ready("b", None), "b"),
        (lambda: reducer.view("c"), 'no parameter "c"'),
    ]
    for call, why in given:
        with pytest.raises(pc.InvalidArgument, match=why):
            call()
    assert reducer.finish()["a"].tolist() == [1, 1, 1]
    assert GradientReducer({}).reduce({}) == {}


def test_what_cannot_be_right_is_refused_before_anything_is_sent() -> None:
    testing.run(refusals, 2)


def different() -> list[str]:
    rank = pc.rank()
    same = ("same", np.zeros(4))
    rows: list[Callable[[], Any]] = [
        lambda: GradientReducer([same, ("w", np.zeros(3 + (rank == 1)))]),
        lambda: GradientReducer([same, *([("w", np.zeros(3))] if rank != 1 else [])]),
        lambda: GradientReducer([same], op="sum" if rank == 1 else "avg"),
        lambda: GradientReducer([same], op=pc.scaled("sum", 0.5 if rank == 1 else 0.25)),
        lambda: GradientReducer([same], bucket_nbytes=100 + (rank == 1)),
        lambda: GradientReducer([same], compression="f16" if rank == 1 else None),
    ]
    said = []
    for row in rows:
        with pytest.raises(pc.CollectiveMismatch) as raised:
            row()
        said.append(str(raised.value))
        assert pc.allreduce(1) == pc.size(), "the group goes on"
    return said


def test_ranks_with_different_parameters_are_all_informed_which_one_it_is() -> None:
    first, second, third = testing.run(different, 3)
    assert first == second == third
    for text, why in zip(
        first,
        [
            'parameter 1 is "w" float64[4] on rank 1 and "w" float64[3] on rank 0',
            'parameter 1 is missing on rank 1 and "w" float64[3] on rank 0',
            "op sum",
            "op sum * 0.5",
            "101 B",
            "compression f16",
        ],
        strict=True,
    ):
        assert why in text


def given_up() -> None:
    rank = pc.rank()
    reducer = GradientReducer(
        {name: np.zeros(2) for name in "abcd"}, bucket_nbytes=16, first_bucket_nbytes=16
    )
    mine = {name: np.full(2, 3.0 * rank) for name in "abcd"}
    for launched in range(4):
        if rank == 1:
            for name in "dcba"[:launched]:
                reducer.ready(name, mine[name])
            assert reducer.begun == (launched > 0)
            reducer.reset()
            assert not reducer.begun
        else:
            with pytest.raises(pc.CollectiveMismatch, match=r"(?s)rank 1.*barrier.*given this step up"):
                reducer.reduce(mine)
        assert reducer.reduce(mine)["a"].tolist() == [3, 3], "the next step is in order again"
    for name in "dcba"[:rank]:
        reducer.ready(name, mine[name])
    reducer.reset()
    assert reducer.reduce(mine)["b"].tolist() == [3, 3], "and so if all gave up, wherever they were"


def test_a_step_that_one_rank_gives_up_is_an_error_on_the_others_and_the_next_one_works() -> None:
    testing.run(given_up, 3)


def late() -> None:
    reducer = GradientReducer({"a": np.zeros(2), "b": np.zeros(2, "f4")}, timeout=0.3)
    x = np.zeros(1)
    if pc.rank() == 1:
        pc.recv(x, 0)  # until rank 0 has given up
    with pytest.raises(pc.CollectiveTimeout, match="bucket 1 of 2"):
        reducer.reduce({})
    if pc.rank() == 0:
        pc.send(x, 1)
    patient = GradientReducer({"a": np.zeros(2)})
    if pc.rank() == 1:
        pc.recv(x, 0)
        assert patient.reduce({"a": np.full(2, 2.0)})["a"].tolist() == [1, 1]
        return
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        patient.finish()
    except KeyboardInterrupt:
        pc.send(x, 1)
    assert patient.finish()["a"].tolist() == [1, 1], "the step went on"


def interrupted() -> None:
    """Interrupts the step that it gives up, before the other ranks reach it."""
    reducer = GradientReducer({"a": np.zeros(2), "b": np.zeros(2, "f4")})
    x = np.zeros(1)
    if pc.rank() == 1:
        pc.recv(x, 0)
        with pytest.raises(pc.CollectiveMismatch, match="given this step up"):
            reducer.reduce({})
    else:
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            reducer.reset()
        with pytest.raises(pc.InvalidArgument, match="reset\\(\\) was interrupted"):
            reducer.finish()
        pc.send(x, 1)
        reducer.reset()
    assert reducer.reduce({"a": np.full(2, 2.0 * pc.rank())})["a"].tolist() == [1, 1], (
        "the next step is in order"
    )


def test_ctrl_c_while_a_step_is_given_up_leaves_the_steps_in_order() -> None:
    testing.run(interrupted, 2)


def together() -> None:
    """Each rank ends two steps in another order."""
    pair = [GradientReducer({"a": np.zeros(2)}, timeout=10) for _ in "ab"]
    order = pair if pc.rank() else pair[::-1]
    for reducer in order:
        reducer.launch_all()
    assert [reducer.finish()["a"].tolist() for reducer in order] == [[0, 0]] * 2


def test_steps_of_two_reducers_may_end_in_any_order() -> None:
    testing.run(together, 2)


def test_a_timeout_ends_the_step_and_ctrl_c_does_not() -> None:
    testing.run(late, 2)


def test_buckets_are_cut_backwards_by_dtype_and_the_first_is_small() -> None:
    kinds = ["f4", "f2", "f4", "f4", "f2", "f4"]
    slots = [Slot(str(i), (10,), kind, 10 * int(kind[1])) for i, kind in enumerate(kinds)]

    def names(bucket_nbytes: int, first: int) -> list[str]:
        return ["".join(slot.name for slot in bucket) for bucket in cut(slots, bucket_nbytes, first)]

    assert names(80, 40) == ["5", "32", "41", "0"]
    assert names(1000, 1000) == ["41", "5320"]
    assert names(1, 1) == ["5", "4", "3", "2", "1", "0"]
    assert cut([], 1, 1) == []


def test_a_step_takes_pairs_and_refuses_gradients_without_names(world_of_one: pc.Group) -> None:
    reducer = GradientReducer([("a", np.zeros(2))])
    assert reducer.reduce([("a", np.ones(2))])["a"].tolist() == [1, 1]
    for wrong in ([np.ones(3)], np.ones(3), None):
        with pytest.raises(pc.InvalidArgument, match=r"dict\(zip\(names, gradients\)\)"):
            reducer.reduce(wrong)  # type: ignore[arg-type]
    with pytest.raises(pc.InvalidArgument, match="two gradients have one name"):
        reducer.reduce([("a", np.ones(2)), ("a", np.ones(2))])
    assert reducer.reduce({"a": np.ones(2)})["a"].tolist() == [1, 1]
