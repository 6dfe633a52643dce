"""Metrics: weighted sums that travel in one call, top-k counts, and joined arrays."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import named_checks
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pycollective as pc
from pycollective.metrics import joined as joined_arrays
from pycollective.metrics import top_k

CHECKS = named_checks.Checks()
SIZES = (1, 2, 3, 4)


@functools.cache
def makers() -> dict[str, Callable[[Any], Any]]:
    """Returns functions that convert NumPy arrays.

    Imports here, since every rank would wait for them at the top.
    """
    import jax.numpy as jnp
    from arrays import torch

    found: dict[str, Callable[[Any], Any]] = {"numpy": np.asarray, "jax": jnp.asarray}
    return found if torch is None else found | {"torch": torch.from_numpy}


def raised_everywhere(error: type[Exception], match: str, call: Any, *args: Any, **kwargs: Any) -> None:
    """Checks that this rank and all other ranks raise, and that the group is in step afterwards."""
    with pytest.raises(error, match=match):
        call(*args, **kwargs)
    assert pc.allreduce(1) == pc.size()


@CHECKS.on(*SIZES)
def means_are_weighted_over_the_ranks() -> None:
    ranks = range(pc.size())
    weight = pc.rank() + 1
    result = pc.metrics.mean({"loss": 2.0 * pc.rank(), "acc": 0.5}, weight=weight)
    total = sum(rank + 1 for rank in ranks)
    assert result == {"loss": sum(2.0 * rank * (rank + 1) for rank in ranks) / total, "acc": 0.5}
    assert all(type(each) is float for each in result.values())


@CHECKS.on(*SIZES)
def a_single_value_gives_a_single_float() -> None:
    assert pc.metrics.mean(pc.rank()) == (pc.size() - 1) / 2
    assert pc.metrics.sum(True) == pc.size()
    assert type(pc.metrics.sum(1)) is float
    assert pc.metrics.sum({}) == {}
    for half in (Fraction(1, 2), Decimal("0.5"), np.float32(0.5), np.longdouble(0.5), np.array([0.5])):
        assert pc.metrics.sum(half) == pc.size() / 2


@CHECKS.on(2, 3)
def a_rank_of_weight_0_counts_nothing_even_if_its_value_is_nan() -> None:
    is_empty = pc.rank() == 0
    value, weight = (math.nan, 0) if is_empty else (3.0, 5)
    assert pc.metrics.mean({"loss": value}, weight=weight) == {"loss": 3.0}
    assert math.isnan(pc.metrics.mean(math.nan if is_empty else 1.0))  # with a weight it counts
    assert math.isnan(pc.metrics.mean(1.0, weight=0))
    assert math.isnan(pc.metrics.Meter().compute())


@CHECKS.on(2)
def integers_are_exact_up_to_2_to_the_53() -> None:
    assert pc.metrics.sum(2**52 - pc.rank()) == 2**53 - 1


@CHECKS.on(2)
def values_of_any_library_count() -> None:
    values: dict[str, Any] = {"numpy scalar": np.float32(1.5), "numpy of one": np.array([[1.5]])}
    values |= {name: make(np.array(1.5, np.float32)) for name, make in makers().items()}
    values["bfloat16"] = makers()["jax"](1.5).astype("bfloat16")
    if "torch" in makers():
        leaf = makers()["torch"](np.array(1.5)).requires_grad_()
        values |= {"torch leaf": leaf, "torch loss": (leaf * 2).mean() / 2, "torch bfloat16": leaf.bfloat16()}
    assert pc.metrics.mean(values, weight=np.int64(2)) == dict.fromkeys(values, 1.5)


@CHECKS.on(2)
def arrays_of_any_library_are_joined() -> None:
    for make in makers().values():
        x = make(np.full(pc.rank() + 1, pc.rank(), np.float32))
        joined = pc.metrics.cat(x)
        assert type(joined) is type(x)
        assert joined.tolist() == [0, 1, 1]
    if "torch" in makers():
        loss = makers()["torch"](np.ones(1)).requires_grad_() * 1
        assert not pc.metrics.cat(loss).requires_grad


@CHECKS.on(2, 3, 4)
def other_names_are_a_mismatch_on_every_rank() -> None:
    name = "loss" if pc.rank() else "perplexity"
    raised_everywhere(
        pc.CollectiveMismatch,
        r"rank 0 calls mean: \['perplexity'\], rank 1 mean: \['loss'\]",
        pc.metrics.mean,
        {name: 1.0},
    )


@CHECKS.on(2, 3)
def more_names_are_a_mismatch_on_every_rank() -> None:
    values = {"loss": 1.0, "extra": 2.0} if pc.rank() == 1 else {"loss": 1.0}
    raised_everywhere(pc.CollectiveMismatch, "must name the same values", pc.metrics.sum, values)
    call = pc.metrics.sum if pc.rank() else pc.metrics.mean
    raised_everywhere(pc.CollectiveMismatch, "names|same values", call, {"loss": 1.0})
    call = pc.metrics.mean if pc.rank() else pc.metrics.compute
    raised_everywhere(pc.CollectiveMismatch, "rank 0 calls compute", call, {"loss": pc.metrics.Meter()})


@CHECKS.on(2, 3)
def the_order_of_names_is_free() -> None:
    names = ["a", "b", "c"][:: 1 if pc.rank() else -1]
    assert pc.metrics.sum({name: ord(name) for name in names}) == {
        name: ord(name) * pc.size() for name in "abc"
    }


@CHECKS.on(2, 3)
def what_is_no_number_on_one_rank_raises_on_all() -> None:
    odd = pc.rank() == pc.size() - 1
    for bad, why in (
        (np.zeros(3), "shape \\(3,\\)"),
        ("1.0", "a str"),
        (1j, "a complex"),
        (None, "a NoneType"),
    ):
        raised_everywhere(
            pc.InvalidArgument,
            f"rank {pc.size() - 1}: .*'loss'.*{why}",
            pc.metrics.mean,
            {"loss": bad if odd else 1},
        )
        raised_everywhere(pc.InvalidArgument, why, pc.metrics.sum, bad if odd else 1)
    for weight in (-1, math.inf, math.nan, "x"):
        raised_everywhere(pc.InvalidArgument, "weight", pc.metrics.mean, 1.0, weight=weight if odd else 1)
    raised_everywhere(
        pc.InvalidArgument, "a float, no Meter", pc.metrics.compute, {"a": 1.0 if odd else pc.metrics.Meter()}
    )
    raised_everywhere(
        pc.InvalidArgument if odd else pc.CollectiveMismatch, "", pc.metrics.sum, {1 if odd else "a": 1.0}
    )


@CHECKS.on(*SIZES)
def meters_are_local_until_they_are_computed() -> None:
    loss, right = pc.metrics.Meter(), pc.metrics.Meter()
    assert math.isnan(loss.mean)
    for step in range(pc.rank()):  # rank 0 has none at all
        loss.update(step, weight=2)
        right.update(1.0)
    expected = [step for rank in range(pc.size()) for step in range(rank)]
    result = pc.metrics.compute({"loss": loss, "right": right})
    if expected:
        assert result == {"loss": sum(expected) / len(expected), "right": 1.0}
        assert loss.compute() == result["loss"]
    else:
        assert all(math.isnan(each) for each in result.values())
    assert loss.weight == 2 * pc.rank()
    loss.reset()
    assert (loss.total, loss.weight) == (0, 0)


@CHECKS.on(*SIZES)
def accuracy_of_uneven_shards_is_that_of_one_process() -> None:
    random = np.random.default_rng(7)
    scores, targets = random.standard_normal((37, 10)), random.integers(0, 10, 37)
    expected = pc.metrics.accuracy(scores, targets, topk=(1, 5))
    top1, top5 = pc.metrics.Meter(), pc.metrics.Meter()
    cuts = [0, *(min(37, 20 + 5 * rank) for rank in range(pc.size() - 1)), 37]
    mine = range(cuts[pc.rank()], cuts[pc.rank() + 1])
    for begin in range(mine.start, mine.stop, 4):
        part = slice(begin, min(begin + 4, mine.stop))
        for meter, counted in zip(
            (top1, top5), pc.metrics.accuracy(scores[part], targets[part], topk=(1, 5)), strict=True
        ):
            meter.update(counted)
    result = pc.metrics.compute({"top1": top1, "top5": top5})
    assert result == {"top1": expected[0].mean, "top5": expected[1].mean}
    assert pc.metrics.mean({"top1": top1, "loss": 1.0}, weight=2)["top1"] == result["top1"]


@CHECKS.on(*SIZES)
def arrays_are_joined_in_rank_order() -> None:
    x = np.full((pc.rank(), 2), pc.rank(), np.int32)  # rank 0 has none
    joined = pc.metrics.cat(x)
    np.testing.assert_array_equal(
        joined, np.repeat(np.arange(pc.size(), dtype=np.int32), range(pc.size()))[:, None] * [1, 1]
    )
    assert joined.dtype == np.int32
    np.testing.assert_array_equal(pc.metrics.cat(np.array(pc.rank())), np.arange(pc.size()))
    assert pc.metrics.cat(np.empty((0, 3))).shape == (0, 3)


@CHECKS.on(2, 3)
def a_rank_without_data_need_not_know_dtype_and_shape() -> None:
    rows = np.arange(6, dtype=np.int32).reshape(2, 3)
    for nothing in ([], np.empty(0), np.empty(0, np.float32)):
        for lacks in (0, pc.size() - 1):
            joined = pc.metrics.cat(nothing if pc.rank() == lacks else rows)
            np.testing.assert_array_equal(joined, np.concatenate([rows] * (pc.size() - 1)))
            assert joined.dtype == np.int32
    assert pc.metrics.cat([] if pc.rank() else np.empty(0, np.float32)).shape == (0,)
    if "torch" in makers():
        import torch

        halves = torch.ones(2, 3, dtype=torch.bfloat16)
        joined = pc.metrics.cat(torch.empty(0) if pc.rank() else halves)
        assert torch.equal(joined, halves)
        assert joined.dtype == torch.bfloat16
    raised_everywhere(
        pc.InvalidArgument,
        "rank 1: .*cannot become float_of_none",
        functools.partial(_cat_of_an_unknown_dtype, pc.rank() == 1),
    )


def _cat_of_an_unknown_dtype(lacks: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        described = joined_arrays._described
        patch.setattr(
            joined_arrays, "_described", lambda x: (*described(x)[:1], "float_of_none", *described(x)[2:])
        )
        pc.metrics.cat(np.empty(0) if lacks else np.ones((2, 2)))


@CHECKS.on(2, 3)
def what_cannot_be_joined_raises_on_all() -> None:
    odd = pc.rank() == 1
    cat = pc.metrics.cat
    raised_everywhere(
        pc.CollectiveMismatch,
        r"rank 0 has float64 of shape \(2,\), rank 1 float32",
        cat,
        np.zeros(2, "f4" if odd else "f8"),
    )
    raised_everywhere(
        pc.CollectiveMismatch, r"rank 1 float64 of shape \(2, 3\)", cat, np.zeros((2, 3 if odd else 2))
    )
    raised_everywhere(pc.InvalidArgument, "rank 1: .*str is no array", cat, "text" if odd else np.zeros(2))
    masked = np.ma.masked_array(np.zeros(2), [True, False])
    raised_everywhere(pc.InvalidArgument, "rank 1: .*mask", cat, masked if odd else np.zeros(2))
    raised_everywhere(pc.InvalidArgument, "dtype object", cat, np.array([open]))
    if "torch" in makers():
        for bad in (makers()["torch"](np.zeros(2)).to("meta"), makers()["torch"](np.zeros(2)).to_sparse()):
            raised_everywhere(pc.InvalidArgument, "rank 1: .*memory", cat, bad if odd else np.zeros(2))


@CHECKS.on(4)
def a_group_has_its_own_metrics() -> None:
    pair = pc.world().split(pc.rank() // 2)
    assert pc.metrics.sum(pc.rank(), group=pair) == (1 if pc.rank() < 2 else 5)
    assert len(pc.metrics.cat(np.zeros(1), group=pair)) == 2


@pytest.mark.parametrize(("size", "name"), CHECKS.rows())
def test_on_every_rank(size: int, name: str) -> None:
    named_checks.assert_passed(__name__, size, name)


def test_without_a_world_there_is_nothing_to_add_up() -> None:
    with pytest.raises(pc.NotInitialized):
        pc.metrics.mean(1.0)


@pytest.mark.parametrize("library", ["numpy", "jax", "torch"])
def test_accuracy_is_that_of_a_stable_sort(library: str) -> None:
    of = makers().get(library) or pytest.skip(f"{library} is not installed")

    @settings(max_examples=40, deadline=None, derandomize=True)
    @given(st.integers(0, 6), st.integers(1, 6), st.integers(0, 2**32 - 1))
    def holds(samples: int, classes: int, seed: int) -> None:
        random = np.random.default_rng(seed)
        scores = random.integers(0, 4, (samples, classes)).astype(np.float32)  # many scores are equal
        targets = random.integers(0, classes, samples).astype(np.int32)
        order = np.argsort(-scores, axis=1, kind="stable")
        topk = tuple(range(1, classes + 1))
        for k, counted in zip(topk, pc.metrics.accuracy(of(scores), of(targets), topk=topk), strict=True):
            assert counted.total == (order[:, :k] == targets[:, None]).sum()
            assert counted.weight == samples

    holds()


def test_labels_may_stand_in_a_column() -> None:
    for of in makers().values():
        (top1,) = pc.metrics.accuracy(of(np.eye(3)), of(np.array([[0], [2], [2]])))
        assert (top1.total, top1.weight) == (2, 3)


def test_nan_scores_are_never_right() -> None:
    scores = np.array([[np.nan, 1.0], [1.0, np.nan], [np.nan, np.nan]])
    for of in makers().values():
        (top1, top2) = pc.metrics.accuracy(of(scores), of(np.array([0, 0, 0])), topk=(1, 2))
        assert (top1.total, top2.total) == (0, 1)  # the second row: nan precedes 1.0


def test_outputs_that_require_grad_and_half_precision_are_counted() -> None:
    of = makers().get("torch") or pytest.skip("torch is not installed")
    output = of(np.eye(3)).bfloat16().requires_grad_()
    (top1,) = pc.metrics.accuracy(output * 2, of(np.array([0, 1, 0], np.uint8)))
    assert (top1.total, top1.weight) == (2, 3)


@pytest.mark.parametrize(
    ("output", "target", "topk", "why"),
    [
        (np.zeros((2, 3)), np.zeros(2, int), (1, 4), "topk has 4, and there are 3 classes"),
        (np.zeros((2, 3)), np.zeros(2, int), (0,), "topk has 0"),
        (np.zeros((2, 3)), np.array([0, 3]), (1,), "the target 3 is no class"),
        (np.zeros((2, 3)), np.array([-100, 1]), (1,), "the target -100 is no class"),
        (np.zeros((2, 3)), np.zeros(3, int), (1,), "target integers of shape"),
        (np.zeros((2, 3)), np.zeros(2), (1,), "others of"),
        (np.zeros((2, 3)), np.zeros((2, 2), int), (1,), "target integers of shape"),
        (np.zeros((2, 3)), np.zeros((2, 1)), (1,), "others of"),
        (np.zeros(3), np.zeros(3, int), (1,), "shape"),
    ],
)
def test_what_cannot_be_counted_is_refused(output: Any, target: Any, topk: tuple[int, ...], why: str) -> None:
    for of in makers().values():
        with pytest.raises(pc.InvalidArgument, match=why):
            pc.metrics.accuracy(of(output), of(target), topk=topk)


def test_accuracy_imports_no_framework() -> None:
    assert not {"torch", "jax"} & set(vars(top_k))


def test_a_meter_shows_what_it_has() -> None:
    meter = pc.metrics.Meter()
    meter.update(0.25, 4)
    assert repr(meter) == "Meter(mean=0.25, weight=4)"
    with pytest.raises(pc.InvalidArgument, match="not negative"):
        meter.update(1.0, -1)
    assert meter.weight == 4
