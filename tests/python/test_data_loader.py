"""pc.data.DataLoader: this rank's slices of a dataset of any framework, and nothing else to know about ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from arrays import torch
from named_checks import Checks, assert_passed

import pycollective as pc
from pycollective.data import cut

CHECKS = Checks()
N = 10


def slices(global_batch_size: int = 4) -> list[slice]:
    """Of the positions, this rank's in each whole batch."""
    mine = slice(*cut.slice_of(pc.rank(), global_batch_size, pc.size()))
    return [
        slice(begin + mine.start, begin + mine.stop)
        for begin in range(0, N - global_batch_size + 1, global_batch_size)
    ]


@CHECKS.on(1, 2, 4)
def arrays_of_any_library_are_cut_along_axis_0() -> None:
    x, y = np.arange(2.0 * N).reshape(N, 2), np.arange(N)
    datasets: list[Any] = [x, (x, y), [x, y], {"x": x, "more": (y,)}]
    if torch is not None:
        datasets.append({"x": torch.from_numpy(x)})
    for dataset in datasets:
        loader = pc.data.DataLoader(dataset, global_batch_size=4, uneven="drop")
        got = list(loader)
        assert len(got) == len(loader) == 2
        for batch, rows in zip(got, slices(), strict=True):
            assert isinstance(batch, type(dataset))
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

    @CHECKS.on(2)
    def an_iterable_dataset_is_refused_with_the_way_out() -> None:
        class Stream(IterableDataset):  # type: ignore[type-arg]
            def __iter__(self) -> Any:
                return iter(())

        with pytest.raises(pc.InvalidArgument, match=r"pc\.data\.shard"):
            pc.data.DataLoader(Stream(), global_batch_size=2)


@pytest.mark.parametrize(("size", "name"), CHECKS.rows())
def test_on_every_rank(size: int, name: str) -> None:
    assert_passed(__name__, size, name)
