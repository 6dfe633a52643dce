"""pc.data.DataLoader: this rank's slices of a dataset of any framework, without code for ranks."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from arrays import torch
from named_checks import Checks, assert_passed

import pycollective as pc
from pycollective.data import cut

CHECKS = Checks()
N = 10


class Columns(NamedTuple):
    x: Any
    y: Any


def slices(global_batch_size: int = 4) -> list[slice]:
    """Returns this rank's positions in each whole batch."""
    mine = slice(*cut.slice_of(pc.rank(), global_batch_size, pc.size()))
    return [
        slice(begin + mine.start, begin + mine.stop)
        for begin in range(0, N - global_batch_size + 1, global_batch_size)
    ]


@CHECKS.on(1, 2, 4)
def arrays_of_any_library_are_cut_along_axis_0() -> None:
    x, y = np.arange(2.0 * N).reshape(N, 2), np.arange(N)
    datasets: list[Any] = [x, (x, y), Columns(x, y), {"x": x, "more": (y,)}]
    if torch is not None:
        datasets.append({"x": torch.from_numpy(x)})
    for dataset in datasets:
        loader = pc.data.DataLoader(dataset, global_batch_size=4, uneven="drop")
        got = list(loader)
        assert len(got) == len(loader) == 2
        for batch, rows in zip(got, slices(), strict=True):
            assert type(batch) is type(dataset)
            flat = (
                batch
                if isinstance(dataset, np.ndarray)
                else batch["x"]
                if isinstance(batch, dict)
                else batch[0]
            )
            np.testing.assert_array_equal(np.asarray(flat), x[rows])


@CHECKS.on(1, 2)
def anything_with_a_length_and_indices_gives_lists_of_samples() -> None:
    words = [f"word {number}" for number in range(N)]
    batches = list(pc.data.DataLoader(words, batch_size_per_rank=2, uneven="drop"))
    together = pc.allgather_object(batches)
    assert (
        sorted(word for rank in together for batch in rank for word in batch)
        == sorted(words)[: 8 if pc.size() == 2 else N]
    )
    joined = list(pc.data.DataLoader(words, batch_size_per_rank=2, uneven="drop", collate_fn=" ".join))
    assert joined == [" ".join(batch) for batch in batches]


@CHECKS.on(1, 2)
def a_list_that_may_be_samples_or_columns_is_refused_without_a_collate_fn() -> None:
    images = np.arange(2.0 * N).reshape(N, 2)
    made: Any = {"global_batch_size": 4, "uneven": "drop"}
    samples: list[list[Any]] = [
        [*images],
        [{"x": image} for image in images],
        [(image, image) for image in images],
        [[image, {"more": (image,)}] for image in images],
    ]
    for dataset in samples:
        with pytest.raises(pc.InvalidArgument, match=r"tuple of it.*columns, and give collate_fn="):
            pc.data.DataLoader(dataset, **made)
        for batch, rows in zip(pc.data.DataLoader(dataset, collate_fn=list, **made), slices(), strict=True):
            expected = dataset[rows]
            assert [id(each) for each in batch] == [id(each) for each in expected]
    plain: list[list[Any]] = [
        [(image, number) for number, image in enumerate(images)],
        [{"x": number, "words": ["a"]} for number in range(N)],
        [[number, number] for number in range(N)],
        [*images[:, 0]],
    ]
    for dataset in plain:
        for batch, rows in zip(pc.data.DataLoader(dataset, **made), slices(), strict=True):
            assert batch == dataset[rows]
    for inside in ((images, [*images]), {"x": images, "y": ([*images],)}):
        for more in ({}, {"collate_fn": list}):
            with pytest.raises(pc.InvalidArgument, match="one array if they are samples"):
                pc.data.DataLoader(inside, **made, **more)
    words = ["word"] * N
    for mixed in (
        (images, words),
        {"x": images, "y": None},
        ((images, images), words),
        ({"ids": images}, words),
        (words, words),
        {"x": {"image": images}, "y": words},
        {"x": words, "y": words},
    ):
        with pytest.raises(pc.InvalidArgument, match="has something that is no array"):
            pc.data.DataLoader(mixed, **made)
    for samples_of in (tuple(words), dict(enumerate(words))):
        for batch, rows in zip(pc.data.DataLoader(samples_of, **made), slices(), strict=True):
            assert batch == words[rows]
    for numbered in (
        dict(enumerate(images)),
        dict(enumerate(zip(images, images, strict=True))),
        {0: images, 1: images},
        {0: words, 1: words},
    ):
        with pytest.raises(pc.InvalidArgument, match="may be samples by their numbers or columns"):
            pc.data.DataLoader(numbered, **made)
    pairs = [(image, number) for number, image in enumerate(images)]
    for batch, rows in zip(pc.data.DataLoader(dict(enumerate(pairs)), **made), slices(), strict=True):
        assert batch == pairs[rows]
    by_number = pc.data.DataLoader(dict(enumerate(images)), collate_fn=list, **made)
    for batch, rows in zip(by_number, slices(), strict=True):
        np.testing.assert_array_equal(batch, images[rows])


class Labelled(np.ndarray[Any, Any]):
    """An array that is indexed by labels, as those of pandas."""

    iloc = None


@CHECKS.on(1, 2)
def what_is_indexed_by_labels_is_refused() -> None:
    labelled = np.arange(N).view(Labelled)
    for dataset in (labelled, {"x": np.arange(N), "y": labelled}):
        with pytest.raises(pc.InvalidArgument, match=r"indexed by labels: pass x\.to_numpy\(\)"):
            pc.data.DataLoader(dataset, global_batch_size=4, uneven="drop")


@CHECKS.on(1, 2)
def a_sample_of_columns_is_what_they_have_at_one_index() -> None:
    x, y = np.arange(2.0 * N).reshape(N, 2), np.arange(N)
    made: Any = {"global_batch_size": 4, "uneven": "drop", "collate_fn": list}
    for dataset in (y, Columns(x, y), {"x": x, "y": y}):
        for batch, rows in zip(pc.data.DataLoader(dataset, **made), slices(), strict=True):
            for sample, index in zip(batch, range(N)[rows], strict=True):
                if dataset is y:
                    assert sample == index
                else:
                    assert type(sample) is type(dataset)
                    got = sample if isinstance(sample, dict) else sample._asdict()
                    assert (got["x"].tolist(), got["y"]) == (x[index].tolist(), index)


class Broken:
    """A dataset with a missing file."""

    def __len__(self) -> int:
        raise FileNotFoundError(2, "No such file", "train.bin")


@CHECKS.on(2, 3)
def what_one_rank_refuses_is_raised_on_all() -> None:
    last = pc.rank() == pc.size() - 1
    rows: list[tuple[Any, Any, dict[str, Any], type[Exception], str]] = [
        (range(N), Broken(), {}, FileNotFoundError, "train.bin"),
        (range(N), iter([1]), {}, pc.InvalidArgument, "pc.data.shard"),
        (np.zeros(N), [np.zeros(1)] * N, {}, pc.InvalidArgument, "collate_fn="),
        (np.zeros(N), (np.zeros(3), np.zeros(4)), {}, pc.InvalidArgument, r"lengths \[3, 4\]"),
        (np.zeros(N), np.zeros(N), {"num_workers": 1}, pc.InvalidArgument, "num_workers"),
        (np.zeros(N), np.zeros(N), {"options": 1}, TypeError, "iterable"),
    ]
    if torch is not None:
        rows.append((TensorDataset(torch.zeros(N)), Stream(), {}, pc.InvalidArgument, "an IterableDataset"))
    for whole, broken, more, error, why in rows:
        with pytest.raises(error, match=why) as raised:
            pc.data.DataLoader(
                broken if last else whole, batch_size_per_rank=1, uneven="drop", **(more if last else {})
            )
        assert last or isinstance(raised.value.__cause__, pc.RemoteError)
    assert pc.allreduce(1) == pc.size()


def test_without_a_world_the_error_says_to_make_one() -> None:
    with pytest.raises(pc.NotInitialized, match=r"pc\.data\.DataLoader: .*pc\.init\(\)"):
        pc.data.DataLoader(np.zeros(N), global_batch_size=2)


@CHECKS.on(2)
def each_iteration_is_another_epoch_and_a_state_goes_on_within_one() -> None:
    made: Any = {"global_batch_size": 4, "shuffle": True, "seed": 3}
    loader = pc.data.DataLoader(np.arange(N), **made)
    first, second = (np.concatenate(list(loader)).tolist() for _ in range(2))
    assert first != second
    assert loader.epoch == 1
    loader.set_epoch(0)
    batches = iter(loader)
    begun = next(batches).tolist()
    state = loader.state_dict()
    again = pc.data.DataLoader(np.arange(N), **made)
    again.load_state_dict(state)
    assert begun + np.concatenate(list(again)).tolist() == first


@CHECKS.on(2)
def what_is_no_dataset_is_refused_on_all() -> None:
    rows: list[tuple[Any, dict[str, Any], str]] = [
        ((np.zeros(3), np.zeros(4)), {}, r"lengths \[3, 4\]"),
        (iter([1]), {}, "pc.data.shard"),
        (np.zeros(4), {"num_workers": 2}, "num_workers"),
        (np.zeros(4), {"options": {"pin_memory": True}}, "options"),
        ([1, 2], {"options": {"collate_fn": list}}, "options"),
    ]
    for dataset, more, why in rows:
        with pytest.raises(pc.InvalidArgument, match=why):
            pc.data.DataLoader(dataset, global_batch_size=2, **more)
    with pytest.raises(pc.InvalidArgument, match="global_batch_size"):
        pc.data.DataLoader(np.zeros(4))
    assert pc.allreduce(1) == 2


if torch is not None:
    from torch.utils.data import IterableDataset, TensorDataset

    @CHECKS.on(1, 2)
    def a_dataset_of_torch_is_read_by_its_loader() -> None:
        x = torch.arange(2 * N).reshape(N, 2)
        for workers in (0, 1):
            loader = pc.data.DataLoader(
                TensorDataset(x, x[:, 0]), global_batch_size=4, uneven="drop", num_workers=workers
            )
            for (inputs, targets), rows in zip(loader, slices(), strict=True):
                assert torch.equal(inputs, x[rows])
                assert torch.equal(targets, x[rows, 0])
                assert loader.state_dict()["position"] == (4 if rows.start < 4 else 0)
        pairs = pc.data.DataLoader(
            TensorDataset(x), global_batch_size=2, collate_fn=len, options={"drop_last": False}
        )
        assert set(pairs) == {2 // pc.size()}

    class Stream(IterableDataset):  # type: ignore[type-arg]
        def __iter__(self) -> Any:
            return iter(())

    @CHECKS.on(1, 2)
    def exact_batches_of_a_framework_want_a_collate_fn_that_takes_none() -> None:
        x = torch.arange(5)
        made: Any = {"global_batch_size": 4, "uneven": "exact"}  # the last batch has one sample, on rank 0
        with pytest.raises(pc.InvalidArgument, match=r"of torch makes no batch: give collate_fn=.*gather"):
            pc.data.DataLoader(TensorDataset(x), **made)
        for more in ({"collate_fn": len}, {"options": {"collate_fn": len}}):
            counts = list(pc.data.DataLoader(TensorDataset(x), **made, **more))
            assert counts == [4 // pc.size(), int(pc.rank() == 0)]
        assert [len(batch) for batch in pc.data.DataLoader(x, **made)] == counts

    @CHECKS.on(2)
    def an_iterable_dataset_is_refused_with_the_way_out() -> None:
        with pytest.raises(pc.InvalidArgument, match=r"pc\.data\.shard"):
            pc.data.DataLoader(Stream(), global_batch_size=2)


@pytest.mark.parametrize(("size", "name"), CHECKS.rows())
def test_on_every_rank(size: int, name: str) -> None:
    assert_passed(__name__, size, name)
