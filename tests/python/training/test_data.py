"""Samplers and streams are arithmetic, so these tests need no world."""

from __future__ import annotations

import copy
import json
import pickle
from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice, repeat, zip_longest
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pycollective as pc
from pycollective.data import cut
from pycollective.data.samplers import AT_ONCE

POLICIES = ("pad", "drop", "exact")
SIZES = range(1, 8)
COUNTS = range(51)


def samplers(kind: Any, n: int, size: int, **how: Any) -> list[Any]:
    """Returns the samplers of all ranks, or none if the policy leaves no sample."""
    try:
        return [kind(n, rank=rank, size=size, **how) for rank in range(size)]
    except pc.InvalidArgument as error:
        assert "leaves nothing" in str(error)
        return []


def global_batches(ranks: list[Any]) -> list[list[int]]:
    """Returns what all ranks get together, batch by batch. Every rank has as many batches."""
    return [list(chain.from_iterable(slices)) for slices in zip(*ranks, strict=True)]


def expected(order: list[int], batch: int, uneven: str) -> list[list[int]]:
    batches = [order[begin : begin + batch] for begin in range(0, len(order), batch)]
    if batches and len(batches[-1]) < batch and uneven != "exact":
        last = batches.pop()
        if uneven == "pad":
            batches.append(list(islice(chain(last, chain.from_iterable(repeat(order))), batch)))
    return batches


@pytest.mark.parametrize("uneven", POLICIES)
@pytest.mark.parametrize("size", SIZES)
def test_global_batches_are_those_of_one_process_on_any_world(size: int, uneven: Any) -> None:
    for n in COUNTS:
        for batch in {size, 2 * size, 12, 1} if uneven == "exact" else {size, 2 * size, 3 * size}:
            how: Any = {"global_batch_size": batch, "shuffle": True, "uneven": uneven, "seed": n}
            order = list(pc.data.Sampler(n, shuffle=True, seed=n, rank=0, size=1))
            assert sorted(order) == list(range(n))
            ranks = samplers(pc.data.BatchSampler, n, size, **how)
            batches = expected(order, batch, uneven)
            assert global_batches(ranks) == batches
            assert all(len(rank) == len(batches) for rank in ranks)
            if not ranks:
                assert 0 < n < batch


@pytest.mark.parametrize("uneven", POLICIES)
@pytest.mark.parametrize("size", SIZES)
def test_samples_one_by_one_are_dealt_round_robin(size: int, uneven: Any) -> None:
    for n in COUNTS:
        order = list(pc.data.Sampler(n, shuffle=True, rank=0, size=1))
        ranks = samplers(pc.data.Sampler, n, size, shuffle=True, uneven=uneven)
        assert bool(ranks) == (uneven != "drop" or n == 0 or n >= size)
        got = [list(rank) for rank in ranks]
        assert [len(each) for each in got] == [len(rank) for rank in ranks]
        dealt = [sample for row in zip_longest(*got) for sample in row if sample is not None]
        assert dealt == list(chain.from_iterable(expected(order, size, uneven)))
        assert uneven == "exact" or len({len(each) for each in got}) <= 1


@pytest.mark.parametrize("uneven", POLICIES)
@pytest.mark.parametrize("size", SIZES)
def test_streams_are_dealt_as_samples_are(size: int, uneven: Any) -> None:
    for n in COUNTS:
        got = [
            list(pc.data.shard(iter(range(n)), uneven=uneven, rank=rank, size=size)) for rank in range(size)
        ]
        ranks = samplers(pc.data.Sampler, n, size, uneven=uneven)
        assert got == ([list(rank) for rank in ranks] or [[]] * size)


def test_slices_of_a_batch_differ_by_at_most_one_and_lie_together() -> None:
    for length in COUNTS:
        for size in SIZES:
            bounds = [cut.slice_of(rank, length, size) for rank in range(size)]
            assert list(chain.from_iterable(range(*each) for each in bounds)) == list(range(length))
            lengths = [end - begin for begin, end in bounds]
            assert lengths == sorted(lengths, reverse=True)
            assert max(lengths) - min(lengths) <= 1


def test_the_order_is_this_one_for_ever() -> None:
    """A run that is resumed after an update must continue in the same order: never change these."""
    assert list(pc.data.Sampler(12, shuffle=True, seed=7, rank=0, size=1)) == GOLDEN["shuffled"]
    large = pc.data.Sampler(12, shuffle=True, seed=2**64 - 1, rank=0, size=1)
    large.set_epoch(2**64 - 1)
    assert list(large) == GOLDEN["shuffled, largest key"]
    assert list(pc.data.Sampler(12, replacement=True, seed=7, rank=0, size=1)) == GOLDEN["drawn"]
    weights = [0, 1, 2.5, 0] * 3
    weighted = pc.data.Sampler(12, replacement=True, weights=weights, seed=7, rank=0, size=1)
    assert list(weighted) == GOLDEN["by weights"]


GOLDEN: dict[str, list[int]] = {
    "shuffled": [8, 4, 1, 6, 3, 2, 11, 7, 5, 9, 10, 0],
    "shuffled, largest key": [6, 9, 8, 10, 11, 4, 5, 0, 1, 7, 3, 2],
    "drawn": [0, 11, 4, 2, 6, 8, 2, 9, 8, 8, 1, 1],
    "by weights": [10, 2, 5, 5, 1, 9, 2, 6, 1, 10, 10, 6],
}


def test_the_order_is_given_by_the_numbers_of_philox() -> None:
    numbers = np.random.Philox(key=np.array([3, 5], np.uint64)).random_raw(1000)
    sampler = pc.data.Sampler(1000, shuffle=True, seed=3, rank=0, size=1)
    sampler.set_epoch(5)
    assert list(sampler) == sorted(range(1000), key=lambda sample: int(numbers[sample]))


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    orders = set()
    for seed in range(4):
        sampler = pc.data.Sampler(20, shuffle=True, seed=seed, rank=0, size=1)
        orders |= {tuple(sampler) for _ in range(4)}
    assert len(orders) == 16


def test_shuffles_are_fair() -> None:
    sampler = pc.data.Sampler(4, shuffle=True, rank=0, size=1)
    seen = Counter(tuple(sampler) for _ in range(4800))
    assert len(seen) == 24
    assert all(120 < count < 280 for count in seen.values())  # 200 each, 5.6 standard deviations


def test_weights_say_how_often_and_0_says_never() -> None:
    sampler = pc.data.Sampler(4000, replacement=True, weights=[0, 1, 3, 0] * 1000, rank=0, size=1)
    seen = Counter(sample % 4 for sample in sampler)
    assert set(seen) == {1, 2}
    assert 2840 < seen[2] < 3160  # 3000, 5.8 standard deviations
    alike = Counter(pc.data.Sampler(10, replacement=True, rank=0, size=1))
    assert sum(alike.values()) == 10


def test_a_sum_that_was_rounded_up_draws_the_last_sample_that_has_weight() -> None:
    from pycollective.data.order import _fall

    numbers = np.array([0, 2**64 - 1], np.uint64)
    for weights in ([5e-324, 0.0], [0.0, 5e-324, 5e-324, 0.0, 0.0]):
        chosen = _fall(numbers, np.cumsum(weights))
        assert [weights[each] > 0 for each in chosen] == [True, True]


# The epoch of an iteration.


def test_every_iteration_is_the_next_epoch_without_set_epoch() -> None:
    sampler = pc.data.Sampler(20, shuffle=True, rank=0, size=1)
    explicit = pc.data.Sampler(20, shuffle=True, rank=0, size=1)
    for epoch in range(5):
        explicit.set_epoch(epoch)
        assert list(explicit) == list(sampler)
        assert explicit.epoch == sampler.epoch == epoch


def test_set_epoch_gives_exactly_that_epoch_and_goes_on_from_there() -> None:
    sampler = pc.data.BatchSampler(20, global_batch_size=5, shuffle=True, rank=0, size=1)
    epochs = [list(sampler) for _ in range(6)]
    for epoch in (5, 0, 3, 3):
        sampler.set_epoch(epoch)
        assert sampler.epoch == epoch
        assert list(sampler) == epochs[epoch]
    assert list(sampler) == epochs[4]


def test_an_iteration_that_was_left_early_is_over() -> None:
    sampler = pc.data.Sampler(20, shuffle=True, rank=0, size=1)
    epochs = [list(sampler) for _ in range(2)]
    sampler.set_epoch(0)
    assert next(iter(sampler)) == epochs[0][0]
    assert list(sampler) == epochs[1]


def test_an_iteration_has_the_epoch_of_the_moment_it_began() -> None:
    sampler = pc.data.Sampler(20, shuffle=True, rank=0, size=1)
    early, late = iter(sampler), iter(sampler)
    assert list(late) != list(early)
    sampler.set_epoch(0)
    assert list(sampler) == list(iter(copy_at(sampler, 0)))


def copy_at(sampler: pc.data.Sampler, epoch: int) -> pc.data.Sampler:
    other = copy.deepcopy(sampler)
    other.set_epoch(epoch)
    return other


def test_an_endless_stream_of_epochs_is_a_chain() -> None:
    sampler = pc.data.Sampler(3, shuffle=True, rank=0, size=1)
    endless = chain.from_iterable(repeat(sampler))
    drawn = list(islice(endless, 12))
    assert [sorted(drawn[i : i + 3]) for i in range(0, 12, 3)] == [[0, 1, 2]] * 4
    assert drawn[:3] == list(copy_at(sampler, 0))
    assert drawn[9:] == list(copy_at(sampler, 3))


# States.


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_a_state_goes_on_bit_for_bit_also_on_another_world(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 50))
    size, other_size = data.draw(st.integers(1, 7)), data.draw(st.integers(1, 7))
    batch = data.draw(st.integers(1, 20))
    shared: Any = {"shuffle": True, "seed": 3, "uneven": "exact", "global_batch_size": batch}
    ranks = samplers(pc.data.BatchSampler, n, size, **shared)
    epoch = data.draw(st.integers(0, 2))
    done = data.draw(st.integers(0, len(ranks[0])))
    whole = [*global_batches([copy_at(each, epoch) for each in ranks])]
    iterators = [iter(copy_into(each, epoch)) for each in ranks]
    before = [list(chain.from_iterable(next(each) for each in iterators)) for _ in range(done)]
    states = [each.state_dict() for each in ranks]
    assert all(state == states[0] for state in states)
    state = json.loads(json.dumps(states[0]))
    others = samplers(pc.data.BatchSampler, n, other_size, **shared)
    for each in others:
        each.load_state_dict(state)
    if done == len(ranks[0]):
        assert (others[0].epoch, state["position"]) == (epoch + 1, 0)
    else:
        assert others[0].epoch == epoch
        assert before + global_batches(others) == whole
    next_epoch = [copy_at(each, epoch + 1) for each in ranks]
    assert global_batches(others) == global_batches(next_epoch)


def copy_into(sampler: Any, epoch: int) -> Any:
    sampler.set_epoch(epoch)
    return sampler


@pytest.mark.parametrize("uneven", POLICIES)
def test_a_state_goes_on_with_another_batch_size_and_loses_nothing(uneven: Any) -> None:
    old = samplers(pc.data.BatchSampler, 23, 2, batch_size_per_rank=3, uneven=uneven, shuffle=True)
    iterators = [iter(each) for each in old]
    before = [next(each) for each in iterators]
    new = samplers(pc.data.Sampler, 23, 5, uneven=uneven, shuffle=True)
    for each in new:
        each.load_state_dict(old[0].state_dict())
    rest = list(chain.from_iterable(list(each) for each in new))
    everything = Counter([*chain.from_iterable(before), *rest])
    if uneven == "exact":
        assert everything == Counter(range(23))
    elif uneven == "pad":
        assert len(rest) == 20
        assert set(everything) == set(range(23))
    else:
        assert len(rest) == 15
        assert set(everything.values()) == {1}


def test_a_state_of_which_the_rest_is_dropped_is_the_next_epoch() -> None:
    old = pc.data.BatchSampler(10, global_batch_size=4, rank=0, size=1)
    steps = iter(old)
    next(steps), next(steps)
    new = pc.data.BatchSampler(10, global_batch_size=4, uneven="drop", rank=0, size=1)
    new.load_state_dict(old.state_dict())
    assert new.epoch == 1
    assert len(list(new)) == 2


def test_set_epoch_of_a_script_keeps_the_position_that_was_loaded() -> None:
    def script(state: dict[str, Any] | None, first_epoch: int) -> Iterator[tuple[list[int], dict[str, Any]]]:
        sampler = pc.data.BatchSampler(10, global_batch_size=4, shuffle=True, rank=0, size=1)
        if state is not None:
            sampler.load_state_dict(state)
        for epoch in range(first_epoch, 3):
            sampler.set_epoch(epoch)
            for batch in sampler.counting(sampler):
                yield batch, sampler.state_dict()

    whole = list(script(None, 0))
    assert len(whole) == 9
    for done, (_, state) in enumerate(whole, 1):
        assert list(script(state, state["epoch"])) == whole[done:]


def test_set_epoch_of_another_epoch_begins_with_its_first_sample() -> None:
    sampler = pc.data.Sampler(10, rank=0, size=1)
    sampler.load_state_dict({**sampler.state_dict(), "epoch": 4, "position": 6})
    assert len(sampler) == 10
    sampler.set_epoch(5)
    assert list(sampler) == list(range(10))


def test_a_state_may_be_given_what_the_program_has_got() -> None:
    sampler = pc.data.Sampler(10, rank=1, size=2)
    assert sampler.state_dict(done=0)["position"] == 0
    with pytest.raises(pc.InvalidArgument, match="no iteration has begun"):
        sampler.state_dict(done=1)
    list(sampler)
    assert sampler.state_dict(done=3)["position"] == 6
    assert sampler.state_dict()["epoch"] == sampler.state_dict(done=5)["epoch"] == 1
    for done in (-1, 6):
        with pytest.raises(pc.InvalidArgument, match="5 steps"):
            sampler.state_dict(done=done)


def test_ranks_of_unlike_lengths_agree_that_an_epoch_is_over() -> None:
    states = []
    for sampler in samplers(pc.data.Sampler, 5, 3, uneven="exact"):
        list(sampler)
        states.append(sampler.state_dict())
    assert [(state["epoch"], state["position"]) for state in states] == [(1, 0)] * 3


def test_ranks_of_unlike_lengths_have_one_state_after_each_step() -> None:
    for n, size in ((5, 3), (7, 4), (6, 3), (2, 3)):
        ranks = samplers(pc.data.Sampler, n, size, uneven="exact")
        for at, row in enumerate(zip_longest(*(each.counting(each) for each in ranks)), 1):
            states = [r.state_dict() for r, got in zip(ranks, row, strict=True) if got is not None]
            assert all(state == states[0] for state in states)
            others = samplers(pc.data.Sampler, n, size, uneven="exact")
            for other in others:
                other.load_state_dict(states[0])
            if at * size < n:
                rest = sorted(sample for other in others for sample in other)
                assert rest == list(range(at * size, n))
        assert {each.state_dict()["epoch"] for each in ranks} == {1}


def test_a_loader_of_another_sampler_is_refused() -> None:
    sampler = pc.data.BatchSampler(10, global_batch_size=4, rank=0, size=1)
    other = pc.data.BatchSampler(10, global_batch_size=4, rank=0, size=1)
    with pytest.raises(pc.InvalidArgument, match="does not draw from this sampler"):
        next(sampler.counting(other))
    with pytest.raises(pc.InvalidArgument, match="does not say how many samples"):
        next(pc.data.Sampler(3, rank=0, size=1).counting([1]))


STATE = pc.data.Sampler(10, seed=3, rank=0, size=1).state_dict()


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({**STATE, "n": 11}, "n is 11 there and 10 here"),
        ({**STATE, "seed": 4}, "seed is 4 there and 3 here"),
        ({**STATE, "order": "shuffled"}, "order is 'shuffled' there and 'in turn' here"),
        ({**STATE, "version": 2}, "version is 2 there and 1 here"),
        ({**STATE, "epoch": -1}, "epoch=-1 is no whole number"),
        ({**STATE, "position": 11}, "position=11 is behind the last"),
        ({**STATE, "position": 1.5}, "position=1.5 is no whole number"),
        ({}, "has no 'version'"),
    ],
)
def test_a_state_of_other_data_is_refused(state: Any, message: str) -> None:
    sampler = pc.data.Sampler(10, seed=3, rank=0, size=1)
    with pytest.raises(pc.InvalidArgument, match=message):
        sampler.load_state_dict(state)
    assert sampler.state_dict() == STATE


def test_weights_are_part_of_what_a_state_is_of() -> None:
    def drawn(weights: list[float]) -> pc.data.Sampler:
        return pc.data.Sampler(2, replacement=True, weights=weights, rank=0, size=1)

    drawn([1, 2]).load_state_dict(drawn([1, 2]).state_dict())
    with pytest.raises(pc.InvalidArgument, match="by weights"):
        drawn([2, 1]).load_state_dict(drawn([1, 2]).state_dict())


def test_samplers_can_be_pickled_and_copied() -> None:
    sampler = pc.data.Sampler(10, shuffle=True, rank=0, size=1)
    list(sampler)
    for other in (pickle.loads(pickle.dumps(sampler)), copy.deepcopy(sampler)):
        assert other.state_dict() == sampler.state_dict()
        assert list(other) == list(copy_at(sampler, 1))


def test_an_epoch_of_many_samples_is_one_sequence() -> None:
    for n in (AT_ONCE - 1, AT_ONCE, AT_ONCE + 1, 3 * AT_ONCE):
        assert list(pc.data.Sampler(n, rank=0, size=1)) == list(range(n))
        assert list(pc.data.Sampler(n, rank=1, size=2, uneven="exact")) == list(range(1, n, 2))


# Refusals.

PLACE: dict[str, Any] = {"rank": 0, "size": 4}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"global_batch_size": 10},
            r"4 ranks do not divide global_batch_size=10: take 8 or 12, or uneven=\"exact\"",
        ),
        ({"global_batch_size": 3}, "take 4, or"),
        ({}, "global_batch_size= or batch_size_per_rank="),
        ({"global_batch_size": 4, "batch_size_per_rank": 1}, "and not both"),
        ({"global_batch_size": 0}, "a batch of 0 samples"),
        ({"batch_size_per_rank": True}, "a batch of True samples"),
        (
            {"batch_size_per_rank": 3, "uneven": "drop"},
            "leaves nothing of 10 samples: a global batch has 12, on 4",
        ),
        ({"batch_size_per_rank": 1, "uneven": "drop_last"}, "'drop_last' is none of pad, drop, exact"),
        ({"batch_size_per_rank": 1, "seed": -1}, "seed=-1"),
        ({"batch_size_per_rank": 1, "seed": 2**64}, "seed=18446744073709551616"),
        ({"batch_size_per_rank": 1, "seed": None}, "seed=None"),
        ({"batch_size_per_rank": 1, "weights": [1.0] * 10}, "replacement=True"),
        ({"batch_size_per_rank": 1, "weights": [1.0], "replacement": True}, r"shape \(1,\)"),
        ({"batch_size_per_rank": 1, "weights": [-1.0] * 10, "replacement": True}, "none below 0"),
        ({"batch_size_per_rank": 1, "weights": [0.0] * 10, "replacement": True}, "not all 0"),
        ({"batch_size_per_rank": 1, "weights": [np.nan] * 10, "replacement": True}, "finite"),
        ({"batch_size_per_rank": 1, "rank": 4}, "no rank 4 among 4"),
        ({"batch_size_per_rank": 1, "rank": None}, "rank= and size="),
    ],
)
def test_bad_arguments_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(pc.InvalidArgument, match=message):
        pc.data.BatchSampler(10, **{**PLACE, **arguments})


@pytest.mark.parametrize("n", [-1, True, 1.5, "a generator"])
def test_what_has_no_length_is_refused(n: Any) -> None:
    with pytest.raises(pc.InvalidArgument, match="samples|has no length"):
        pc.data.Sampler((each for each in "ab") if n == "a generator" else n, **PLACE)


def test_lengths_come_from_numbers_and_datasets() -> None:
    for five in (5, np.int64(5), range(5), np.zeros((5, 2)), "abcde"):
        assert len(pc.data.Sampler(five, rank=0, size=1)) == 5


def test_a_dataset_smaller_than_the_world_with_drop_is_refused() -> None:
    with pytest.raises(pc.InvalidArgument, match="leaves nothing of 3 samples"):
        pc.data.Sampler(3, uneven="drop", **PLACE)


@pytest.mark.parametrize("epoch", [-1, 1.0, True, 2**64])
def test_an_epoch_that_cannot_be_is_refused(epoch: Any) -> None:
    sampler = pc.data.Sampler(3, **PLACE)
    with pytest.raises(pc.InvalidArgument, match="epoch="):
        sampler.set_epoch(epoch)
    assert sampler.epoch == 0


def test_without_a_world_rank_and_size_must_be_given() -> None:
    for call in (pc.data.Sampler, pc.data.shard):
        with pytest.raises(pc.NotInitialized, match=r"pc.init\(\) first, or give rank= and size="):
            call(range(3))  # type: ignore[operator]


def test_without_a_world_one_rank_reads_and_loads_for_itself() -> None:
    assert list(pc.data.scatter([[1, 2], [3]])) == [[1, 2], [3]]
    assert not pc.data.shared(lambda: np.ones(3)).flags.writeable


def test_a_stream_is_read_no_further_than_one_round_ahead() -> None:
    read: list[int] = []

    def stream() -> Iterator[int]:
        for each in range(100):
            read.append(each)
            yield each

    share = pc.data.shard(stream(), rank=1, size=3)
    assert not read
    assert [next(share), next(share)] == [1, 4]
    assert len(read) == 6


def test_an_exception_of_a_stream_comes_where_it_happened() -> None:
    def stream() -> Iterator[int]:
        yield from range(4)
        raise OSError("torn")

    share = pc.data.shard(stream(), rank=0, size=2)
    assert [next(share), next(share)] == [0, 2]
    with pytest.raises(OSError, match="torn"):
        next(share)
