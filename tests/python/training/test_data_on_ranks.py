"""Samplers, scattered batches, gathered results and shared datasets in worlds of processes."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import named_checks
import numpy as np
import pytest

import pycollective as pc
from pycollective import testing
from pycollective.data import cut, shared_data

CHECKS = named_checks.Checks()


def in_step() -> None:
    """Checks that the group is usable and no rank is a call ahead."""
    assert pc.allreduce(1) == pc.size()


# Samplers of a world.


@CHECKS.on(1, 2, 3, 4)
def a_sampler_has_the_place_of_its_rank() -> None:
    sampler = pc.data.BatchSampler(10, batch_size_per_rank=2, shuffle=True)
    assert (sampler.rank, sampler.size) == (pc.rank(), pc.size())
    alone = pc.data.BatchSampler(10, batch_size_per_rank=2, shuffle=True, rank=pc.rank(), size=pc.size())
    assert list(sampler) == list(alone)
    mine = list(pc.data.shard(range(10), uneven="exact"))
    assert mine == list(range(pc.rank(), 10, pc.size()))


@CHECKS.on(4)
def a_sampler_of_a_group_is_for_its_ranks() -> None:
    pair = pc.world().split(pc.rank() // 2)
    assert pair is not None
    sampler = pc.data.Sampler(10 + pc.rank() // 2, group=pair)  # another length in each group
    assert (sampler.rank, sampler.size) == (pair.rank, 2)
    with pytest.raises(pc.InvalidArgument, match="or group="):
        pc.data.Sampler(10, group=pair, rank=0, size=2)


@CHECKS.on(2, 3)
def ranks_that_disagree_are_refused_on_all() -> None:
    last = pc.rank() == pc.size() - 1
    differences: dict[str, Callable[[], object]] = {
        "the number of samples is 10 on rank 0 and 11": lambda: pc.data.Sampler(10 + last),
        "seed is 0 on rank 0 and 1": lambda: pc.data.Sampler(10, seed=int(last)),
        "the order is 'in turn' on rank 0 and 'shuffled'": lambda: pc.data.Sampler(10, shuffle=last),
        "uneven is 'pad' on rank 0 and 'drop'": lambda: pc.data.Sampler(10, uneven="drop" if last else "pad"),
        "the global batch is": lambda: pc.data.BatchSampler(50, batch_size_per_rank=2 + last),
    }
    for message, make in differences.items():
        with pytest.raises(pc.CollectiveMismatch, match=message):
            make()
        in_step()


@CHECKS.on(2, 3)
def what_one_rank_refuses_is_raised_on_all() -> None:
    with pytest.raises(pc.InvalidArgument, match="there cannot be -1 samples"):
        pc.data.Sampler(-1 if pc.rank() == 1 else 10)
    in_step()


@CHECKS.on(2)
def other_calls_on_the_other_rank_are_refused_on_all() -> None:
    sampler = pc.data.Sampler(4)
    list(sampler)
    calls: list[Callable[[], object]] = [
        lambda: pc.data.gather(np.zeros(2), sampler),
        lambda: pc.data.shared(lambda: np.zeros(2)),
        lambda: pc.data.Sampler(4),
        lambda: pc.data.BatchSampler(4, global_batch_size=2),
    ]
    for mine, theirs in itertools.permutations(calls, 2):
        with pytest.raises(pc.CollectiveMismatch, match=r"rank 0 calls pc.data.\w+ and rank 1 pc.data.\w+"):
            (theirs if pc.rank() else mine)()
        in_step()


@CHECKS.on(2)
def a_sampler_with_rank_and_size_makes_no_call() -> None:
    if pc.rank() == 0:
        assert list(pc.data.Sampler(3, rank=0, size=1)) == [0, 1, 2]
    in_step()


# Exact evaluation.

EVALUATED = [("pad", 4, n) for n in (1, 3, 4, 5, 16, 17)] + [("exact", 5, n) for n in (0, 1, 4, 5, 6, 23)]


@CHECKS.on(1, 2, 4)
def results_come_back_in_the_order_of_the_dataset() -> None:
    for uneven, batch, n in EVALUATED:
        for shuffle in (False, True):
            how: Any = {"uneven": uneven, "shuffle": shuffle}
            for sampler in (
                pc.data.BatchSampler(n, global_batch_size=batch, **how),
                pc.data.Sampler(n, **how),
            ):
                list(sampler)
                mine = np.array([sample for each in sampler for sample in np.atleast_1d(each)], np.int64)
                rows = np.stack([mine, mine * 2], axis=1)
                whole = pc.data.gather(
                    {"rows": rows, "pair": (mine > 2, [str(each) for each in mine])}, sampler
                )
                np.testing.assert_array_equal(whole["rows"], np.stack([np.arange(n), np.arange(n) * 2], 1))
                np.testing.assert_array_equal(whole["pair"][0], np.arange(n) > 2)
                assert whole["pair"][1] == [str(each) for each in range(n)]
                assert list(whole) == ["rows", "pair"]


@CHECKS.on(1, 2, 4)
def what_was_computed_for_pads_is_dropped() -> None:
    for n in (1, 3, 4, 5):
        sampler = pc.data.BatchSampler(n, global_batch_size=4)
        each = 4 // pc.size()
        positions = np.array(
            [4 * b + pc.rank() * each + i for b, _ in enumerate(sampler) for i in range(each)]
        )
        np.testing.assert_array_equal(pc.data.gather(positions, sampler), np.arange(n))


@CHECKS.on(2)
def values_may_be_views_with_gaps_and_are_not_changed() -> None:
    sampler = pc.data.Sampler(6)
    mine = np.array([(each, -each) for each in sampler])
    mine.flags.writeable = False
    np.testing.assert_array_equal(pc.data.gather(mine[:, 1], sampler), -np.arange(6))


@CHECKS.on(2)
def results_that_are_not_one_a_sample_are_refused_on_all() -> None:
    sampler = pc.data.BatchSampler(7, global_batch_size=2)
    with pytest.raises(pc.InvalidArgument, match="did not go through a whole epoch"):
        pc.data.gather(np.zeros(4), sampler)
    batches = list(sampler)
    with pytest.raises(pc.InvalidArgument, match=r"got 4 samples, and a ndarray of shape \(3,\)"):
        pc.data.gather(np.zeros(4 - pc.rank()), sampler)
    with pytest.raises(pc.InvalidArgument, match=r"a list of shape \(3,\) .*: join the results"):
        pc.data.gather(batches[:3], sampler)
    with pytest.raises(pc.InvalidArgument, match="a float of shape"):
        pc.data.gather(1.0, sampler)
    with pytest.raises(pc.CollectiveMismatch, match="the values is 'float64 rows"):
        pc.data.gather(np.zeros((4, 1 + pc.rank())), sampler)
    with pytest.raises(pc.CollectiveMismatch, match="the values is"):
        pc.data.gather(np.zeros(4, [np.float32, np.float64][pc.rank()]), sampler)
    sampler.set_epoch(pc.rank())
    list(sampler)
    with pytest.raises(pc.CollectiveMismatch, match="the epoch is 0 on rank 0 and 1 on rank 1"):
        pc.data.gather(np.zeros(4), sampler)
    in_step()


@CHECKS.on(2)
def values_that_cannot_be_sent_are_refused_on_all() -> None:
    torch = pytest.importorskip("torch")
    sampler = pc.data.Sampler(6)
    list(sampler)
    for bad in (
        torch.zeros(3, device="meta"),
        torch.zeros(3).to_sparse(),
        np.ma.masked_array(np.zeros(3), [1, 0, 0]),
    ):
        good = torch.zeros(3) if isinstance(bad, torch.Tensor) else np.zeros(3)
        with pytest.raises(pc.InvalidArgument, match="pc.data.gather: values"):
            pc.data.gather(bad if pc.rank() else good, sampler)
        in_step()


@CHECKS.on(2)
def samplers_that_leave_something_out_have_no_exact_results() -> None:
    dropping = pc.data.Sampler(7, uneven="drop")
    list(dropping)
    with pytest.raises(pc.InvalidArgument, match="left out 1 samples"):
        pc.data.gather(np.zeros(3), dropping)
    drawing = pc.data.Sampler(6, replacement=True)
    list(drawing)
    with pytest.raises(pc.InvalidArgument, match="replacement"):
        pc.data.gather(np.zeros(3), drawing)
    resumed = pc.data.Sampler(6)
    resumed.load_state_dict({**resumed.state_dict(), "position": 2})
    list(resumed)
    with pytest.raises(pc.InvalidArgument, match="whole epoch"):
        pc.data.gather(np.zeros(2), resumed)
    alone = pc.data.Sampler(6, rank=0, size=1)
    list(alone)
    with pytest.raises(pc.InvalidArgument, match="the sampler is for rank 0 of 1"):
        pc.data.gather(np.zeros(6), alone)
    full = pc.data.Sampler(6, uneven="drop")
    np.testing.assert_array_equal(pc.data.gather(np.array(list(full)), full), np.arange(6))


# One rank reads.


def only_root(batches: Any, root: int = 0) -> Any:
    return batches if pc.rank() == root else None


def joined(parts: list[Any]) -> list[Any]:
    """Returns what all ranks have, by batch."""
    by_rank = pc.allgather_object(parts)
    return list(zip(*by_rank, strict=True))


@CHECKS.on(1, 2, 3, 4)
def the_root_reads_and_every_rank_has_its_slice() -> None:
    for root in {0, pc.size() - 1}:
        lengths = (0, 1, pc.size() - 1, pc.size(), pc.size() + 1, 100)
        batches = [np.arange(3 * n, dtype=np.float32).reshape(n, 3) for n in lengths]
        parts = list(pc.data.scatter(only_root(batches, root), root=root))
        assert len(parts) == len(batches)
        for slices, batch in zip(joined(parts), batches, strict=True):
            np.testing.assert_array_equal(np.concatenate(slices), batch)
            sizes = [len(each) for each in slices]
            assert max(sizes) - min(sizes) <= 1
            assert {each.dtype for each in slices} == {np.dtype(np.float32)}
    in_step()


@CHECKS.on(2, 3)
def batches_may_be_containers() -> None:
    x, y = np.arange(10.0).reshape(5, 2), np.arange(5)
    words = list("abcde")
    batches: list[Any] = [
        (x, y),
        {"x": x, "more": (y, words)},
        [x, y],
        words,
        [],
        [[1, "a"], [2, "b"], [3, "c"]],
        [(x, 1), (y, 2), (x, 3)],
    ]
    pair, named, listed, strings, nothing, words_of_each, samples = pc.data.scatter(only_root(batches))
    mine = slice(*cut.slice_of(pc.rank(), 5, pc.size()))
    for got in (pair, listed):
        np.testing.assert_array_equal(got[0], x[mine])
        np.testing.assert_array_equal(got[1], y[mine])
    assert (type(pair), type(listed)) == (tuple, list)
    np.testing.assert_array_equal(named["more"][0], y[mine])
    assert named["more"][1] == strings == words[mine]
    assert nothing == []
    assert [each for part in pc.allgather_object(words_of_each) for each in part] == batches[-2]
    assert [len(each[0]) for part in pc.allgather_object(samples) for each in part] == [5, 5, 5]


@CHECKS.on(2, 3)
def what_has_no_first_axis_goes_to_every_rank_whole() -> None:
    whole = {"none": None, "flag": True, "n": 3, "scale": 0.5, "name": "first", "point": np.array(1.5)}
    batches = [{"x": np.arange(5), **whole}, (np.arange(5), None, 7)]
    named, pair = pc.data.scatter(only_root(batches))
    mine = slice(*cut.slice_of(pc.rank(), 5, pc.size()))
    assert {key: named[key] for key in whole} == whole
    np.testing.assert_array_equal(named["x"], np.arange(5)[mine])
    np.testing.assert_array_equal(pair[0], np.arange(5)[mine])
    assert pair[1:] == (None, 7)


@CHECKS.on(2)
def an_end_and_no_batch_at_all_end_the_loop_on_all() -> None:
    assert list(pc.data.scatter(only_root([]))) == []
    assert list(pc.data.scatter(only_root(iter(())))) == []
    in_step()


@CHECKS.on(2, 3)
def an_exception_of_the_root_is_raised_on_all_after_the_batches_before_it() -> None:
    def batches() -> Iterator[Any]:
        yield np.arange(6)
        raise FileNotFoundError(2, "no such file", "/data/2")

    got = []

    def loop() -> None:
        for part in pc.data.scatter(only_root(batches())):
            got.append(len(part))

    with pytest.raises(FileNotFoundError, match="/data/2") as caught:
        loop()
    assert got == [6 // pc.size()]
    assert isinstance(caught.value.__cause__, pc.RemoteError) == (pc.rank() != 0)
    in_step()


@CHECKS.on(2)
def batches_that_cannot_be_cut_are_refused_on_all() -> None:
    for batch, message in {
        "unlike": ((np.zeros(3), np.zeros(4)), r"arrays of lengths \[3, 4\]"),
        "mixed": ([np.zeros(3), open], "a builtin_function_or_method in a batch"),
        "number": (7, "a int without arrays"),
        "point": (np.zeros(()), "a ndarray without arrays"),
        "empty": ((), "a tuple without arrays"),
        "columns or samples": ([{"a": np.zeros(2)}, {"b": np.zeros(2)}], "samples or columns"),
        "columns or samples, deeper": ({"x": [[[np.zeros(2)]], [1]]}, "samples or columns"),
    }.values():
        with pytest.raises(pc.InvalidArgument, match=message):
            list(pc.data.scatter(only_root([batch])))
    with pytest.raises(pc.InvalidArgument, match="not None"):
        list(pc.data.scatter(None))
    with pytest.raises(pc.InvalidArgument, match="2 ranks"):
        pc.data.scatter(None, root=2)
    with pytest.raises(pc.InvalidArgument if pc.rank() == 0 else pc.Aborted):
        list(pc.data.scatter(only_root([[open, open]])))
    in_step()


@CHECKS.on(2)
def a_collective_while_the_root_reads_raises_instead_of_waiting() -> None:
    def batches() -> Iterator[Any]:
        pc.barrier()
        yield []

    with pytest.raises(pc.InvalidArgument, match=r"inside pc.data.scatter\(\)"):
        list(pc.data.scatter(only_root(batches())))
    in_step()


@CHECKS.on(2)
def all_ranks_may_leave_the_loop_together() -> None:
    for part in pc.data.scatter(only_root([np.arange(4)] * 3)):
        assert len(part) == 2
        assert pc.allreduce(1) == 2  # the loop may contain collectives
        break
    in_step()


# One copy per host.

DATA: dict[str, Any] = {
    "x": np.arange(300_000, dtype=np.float32).reshape(1000, 300),
    "every other": np.arange(10)[::2],
    "swapped": np.arange(3, dtype=">i4"),
    "records": np.array([(1, 2.5), (3, 4.5)], [("id", "i4"), ("at", "f8")]),
    "text": np.array(["a", "bcd"]),
    "days": np.array(["2024-02-29"], "M8[D]"),
    "number": np.array(7),
    "none": np.zeros((0, 3)),
}


def mapped_inodes() -> set[str]:
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {line.split()[4] for line in lines if "memfd:pycollective-data" in line}


def the_same(got: dict[str, Any]) -> None:
    assert list(got) == list(DATA)
    for name, array in DATA.items():
        np.testing.assert_array_equal(got[name], array)
        assert got[name].dtype == array.dtype
        assert not got[name].flags.writeable
        with pytest.raises(ValueError, match="WRITEABLE"):
            got[name].flags.writeable = True


@CHECKS.on(1, 2, 3)
def one_rank_loads_and_the_others_map_its_memory() -> None:
    loaded = []

    def load() -> dict[str, Any]:
        loaded.append(pc.rank())
        return DATA if pc.size() > 1 else {name: array.copy() for name, array in DATA.items()}

    data = pc.data.shared(load)
    assert loaded == [0] * (pc.rank() == 0)
    if pc.size() == 1:
        assert not any(array.flags.writeable for array in data.values())
        return
    the_same(data)
    inodes = pc.allgather_object(mapped_inodes())
    assert len(inodes[0]) == 1
    assert inodes == [inodes[0]] * pc.size()
    del data
    assert not mapped_inodes()
    in_step()


@CHECKS.on(2)
def arrays_come_alone_or_in_tuples_too() -> None:
    alone = pc.data.shared(lambda: DATA["x"])
    np.testing.assert_array_equal(alone, DATA["x"])
    pair = pc.data.shared(lambda: (DATA["x"], DATA["none"]))
    assert isinstance(pair, tuple)
    assert [each.shape for each in pair] == [(1000, 300), (0, 3)]
    assert pc.data.shared(lambda: ()) == ()
    assert all(each.ctypes.data % 64 == 0 for each in pair)


class OnTwoHosts:
    """Represents the world as if its last rank were on a host of its own."""

    def __init__(self) -> None:
        self._hosts = (0,) * (pc.size() - 1) + (1,)

    def __getattr__(self, name: str) -> Any:
        return getattr(pc.world(), name)


@CHECKS.on(3)
def every_host_loads_once() -> None:
    group: Any = OnTwoHosts()
    loaded = []

    def load() -> dict[str, Any]:
        loaded.append(pc.rank())
        return DATA

    data = pc.data.shared(load, group=group)
    the_same(data)
    assert loaded == [pc.rank()] * (pc.rank() in (0, 2))
    inodes = pc.allgather_object(mapped_inodes())
    assert inodes[0] == inodes[1] != inodes[2]
    with pytest.raises(pc.CollectiveMismatch, match="what was loaded is .* on rank 0 and .* on rank 2"):
        pc.data.shared(lambda: np.zeros(2 + pc.rank()), group=group)
    with pytest.raises(KeyError, match="of the second host"):
        pc.data.shared(lambda: DATA["x"] if pc.rank() == 0 else {}["of the second host"], group=group)
    in_step()


@CHECKS.on(2, 3)
def a_rank_that_cannot_see_the_others_process_gets_a_copy() -> None:
    map_of_another = shared_data._mapped
    try:
        if pc.rank() == 1:
            shared_data._mapped = lambda *_: None  # type: ignore[assignment]
        data = pc.data.shared(lambda: DATA)
    finally:
        shared_data._mapped = map_of_another
    the_same(data)
    assert len(mapped_inodes()) == (pc.rank() != 1)
    in_step()


@CHECKS.on(2)
def memory_with_another_mark_is_not_taken() -> None:
    fd = os.memfd_create("pycollective-data")
    try:
        os.write(fd, bytes(100))
        assert shared_data._mapped(os.getpid(), fd, 100, bytes(16)) is not None
        assert shared_data._mapped(os.getpid(), fd, 100, bytes([1] * 16)) is None
        assert shared_data._mapped(os.getpid(), fd, 101, bytes(16)) is None
    finally:
        os.close(fd)
    assert shared_data._mapped(os.getpid(), fd, 100, bytes(16)) is None
    read, write = os.pipe()
    try:
        assert shared_data._mapped(os.getpid(), read, 100, bytes(16)) is None
    finally:
        os.close(read), os.close(write)


@CHECKS.on(2)
def each_of_many_arrays_is_touched_a_few_times() -> None:
    made = 0
    views = shared_data.Layout.views_of

    def counted(*args: Any) -> Any:
        nonlocal made
        made += len(found := views(*args))
        return found

    shared_data.Layout.views_of = counted  # type: ignore[method-assign]
    try:
        pc.data.shared(lambda: {str(each): np.zeros(1) for each in range(100)})
    finally:
        shared_data.Layout.views_of = views  # type: ignore[method-assign]
    assert made <= 200


@CHECKS.on(2)
def the_memory_cannot_be_changed() -> None:
    fd = shared_data._filled(*shared_data._laid_out(DATA["x"]), bytes(shared_data.MARK_NBYTES))
    try:
        with pytest.raises(PermissionError):
            os.pwrite(fd, b"x", 0)
        with pytest.raises(PermissionError):
            os.ftruncate(fd, 0)
    finally:
        os.close(fd)


@CHECKS.on(2)
def what_load_raises_is_raised_on_all() -> None:
    for loaded, message in (
        (lambda: [][0], "list index out of range"),
        (lambda: [1, 2], "not a list of"),
        (lambda: (np.zeros(2), "x"), "not a tuple of"),
        (lambda: np.array([open]), "type object cannot be shared"),
        (lambda: np.ma.masked_array([1, 2], [True, False]), "masked"),
        (lambda: pc.barrier(), r"inside pc.data.shared\(\)"),
    ):
        with pytest.raises((IndexError, pc.InvalidArgument), match=message):
            pc.data.shared(loaded)
        in_step()
    assert not mapped_inodes()
    assert not [fd for fd in os.listdir("/proc/self/fd") if "pycollective-data" in link_of(fd)]


def link_of(fd: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except FileNotFoundError:  # of the listing itself
        return ""


@pytest.mark.parametrize(("size", "name"), CHECKS.rows())
def test_on_every_rank(size: int, name: str) -> None:
    named_checks.assert_passed(__name__, size, name)


def loads_and_dies() -> None:
    data = pc.data.shared(lambda: DATA["x"])
    pc.barrier()
    if pc.rank() == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(pc.PeerFailure):
        pc.recv(np.empty(1), 0)
    np.testing.assert_array_equal(data, DATA["x"])
    assert not [name for name in os.listdir("/dev/shm") if "pycollective-data" in name]


def test_the_memory_outlives_the_rank_that_loaded_it_and_has_no_name() -> None:
    with pytest.raises(testing.WorldFailed) as caught:
        testing.run(loads_and_dies, 2, timeout_s=30)
    assert "SIGKILL" in caught.value.errors[0].summary
    assert 1 in caught.value.results, str(caught.value)


def dies_while_it_loads() -> None:
    pc.data.shared(lambda: os.kill(os.getpid(), signal.SIGKILL))


def test_the_death_of_the_rank_that_loads_ends_the_waiting() -> None:
    with pytest.raises(testing.WorldFailed) as caught:
        testing.run(dies_while_it_loads, 2, timeout_s=30)
    assert isinstance(caught.value.errors[1].exception, pc.PeerFailure)
