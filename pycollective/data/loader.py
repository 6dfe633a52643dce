"""A loader for one rank: a BatchSampler chooses the samples, and the framework reads them."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from pycollective._core import Group
from pycollective.base.advice import advised
from pycollective.data.agreement import on_all
from pycollective.data.cut import Uneven
from pycollective.data.samplers import BatchSampler
from pycollective.errors import InvalidArgument, NotInitialized
from pycollective.training.rank0 import members_of

__all__ = ["DataLoader"]

CALL = "pc.data.DataLoader"
# For each framework, the module with its Dataset and DataLoader.
FRAMEWORKS = {"torch": "torch.utils.data", "paddle": "paddle.io"}


class DataLoader:
    """This rank's batches of a dataset that all ranks have. No other code need handle ranks.

        loader = pc.data.DataLoader(dataset, global_batch_size=256, shuffle=True)
        for epoch in range(10):
            for inputs, targets in loader:  # this rank's slices; each loop is the next epoch
                ...

    Parameters:
        dataset: one of the following, the same on all ranks. A Dataset of torch or Paddle is
            read by the DataLoader of that framework. An array or tensor, or a tuple or dict of
            such columns of one length, also nested, is indexed along axis 0. Anything else with
            a length and integer indices, such as a list, gives lists of samples. A list of
            arrays, or of dicts, lists or tuples of arrays, may be samples or columns: without
            a collate_fn it is refused; with a collate_fn it means samples. The same holds for a
            dict of arrays or lists with the keys 0, 1, and so on. A tuple or dict that mixes arrays
            or lists with other things, and data that is indexed by labels (pandas), are
            refused.
        global_batch_size: samples of all ranks together. The number of ranks must divide it,
            unless uneven="exact".
        batch_size_per_rank: samples of one rank; pass this or global_batch_size.
        shuffle: use another order in each epoch.
        seed: from 0; the same on all ranks.
        uneven: how a last batch that is too short is handled: "pad", "drop" or "exact", as in
            BatchSampler. With "exact" a rank's slice may be empty. The DataLoaders of
            frameworks cannot collate an empty slice, so their datasets then need a collate_fn.
        num_workers: the number of processes that read ahead, in a framework's DataLoader.
        collate_fn: makes a batch of a list of samples. A sample of columns is a tuple or dict
            with one element of each column. Default: that of the framework; for columns, the
            indexed part of each column; for other datasets, the list itself.
        options: more arguments for the framework's DataLoader, such as {"pin_memory": True}.
        group: the ranks that share the samples; default the world.

    Attributes:
        sampler: the BatchSampler that chooses the samples.

    Raises:
        InvalidArgument: an argument is invalid; raised on all ranks, as is an exception of the
            dataset's len().
        CollectiveMismatch: the ranks have different arguments, or datasets of different
            lengths.
        NotInitialized: there is no world.

    Example:
        >>> import numpy as np
        >>> import pycollective as pc
        >>> _ = pc.init()
        >>> data = {"x": np.arange(10.0).reshape(5, 2), "y": np.arange(5)}
        >>> for batch in pc.data.DataLoader(data, global_batch_size=2, uneven="drop"):
        ...     print(batch["x"].shape, batch["y"])
        (2, 2) [0 1]
        (2, 2) [2 3]
        >>> pc.shutdown()
    """

    @advised
    def __init__(
        self,
        dataset: Any,  # noqa: ANN401
        *,
        global_batch_size: int | None = None,
        batch_size_per_rank: int | None = None,
        shuffle: bool = False,
        seed: int = 0,
        uneven: Uneven = "pad",
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        options: Mapping[str, Any] | None = None,
        group: Group | None = None,
    ) -> None:
        members = members_of(group)
        if members is None:
            raise NotInitialized(f"{CALL}: there is no world: call pc.init() first")
        more: dict[str, Any] = {}
        found: list[_Found] = []

        def look() -> None:
            more.update(options or {})
            collates = collate_fn is not None or more.get("collate_fn") is not None
            only_of_framework = bool(num_workers or options)
            found.append(
                _look_at(dataset, collates=collates, uneven=uneven, only_of_framework=only_of_framework)
            )

        on_all(members, CALL, look)
        framework, is_columns, length = found[0]
        self.sampler = BatchSampler(
            length,
            global_batch_size=global_batch_size,
            batch_size_per_rank=batch_size_per_rank,
            shuffle=shuffle,
            seed=seed,
            uneven=uneven,
            group=members,
        )
        self._batches: Iterable[Any]
        if framework is not None:
            if collate_fn is not None:
                more["collate_fn"] = collate_fn
            make = sys.modules[FRAMEWORKS[framework]].DataLoader
            self._batches = make(dataset, batch_sampler=self.sampler, num_workers=num_workers, **more)
            return
        if is_columns and collate_fn is None:
            self._batches = _Batches(
                self.sampler, lambda batch: _indexed(dataset, np.asarray(batch, np.int64))
            )
            return
        collate = collate_fn or (lambda samples: samples)
        one = partial(_indexed, dataset) if is_columns else partial(operator.getitem, dataset)
        self._batches = _Batches(self.sampler, lambda batch: collate([one(each) for each in batch]))

    def __len__(self) -> int:
        """Return the number of batches in an epoch, which is equal on all ranks."""
        return len(self.sampler)

    def __iter__(self) -> Iterator[Any]:
        """Iterate the next epoch, or the rest of the epoch after load_state_dict()."""
        return self.sampler.counting(self._batches)

    @property
    def epoch(self) -> int:
        """The epoch of the latest iteration; at first and after set_epoch(), of the next one."""
        return self.sampler.epoch

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration. By default, each iteration advances by one epoch."""
        self.sampler.set_epoch(epoch)

    def state_dict(self) -> dict[str, int | str]:
        """Return the program's position, also within an epoch. The state is equal on all ranks."""
        return self.sampler.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Make the next iteration begin where the state was taken, on any number of ranks."""
        self.sampler.load_state_dict(state)


class _Batches:
    """Reads the samples of each batch of indices when the batch is requested."""

    def __init__(self, sampler: BatchSampler, make: Callable[[list[int]], Any]) -> None:
        self._sampler = sampler
        self._make = make

    def __iter__(self) -> Iterator[Any]:
        return map(self._make, self._sampler)


class _Found(NamedTuple):
    framework: str | None
    is_columns: bool  # whether the dataset consists of arrays that are indexed with the same indices
    length: int


def _look_at(
    dataset: Any,  # noqa: ANN401
    *,
    collates: bool,
    uneven: Uneven,
    only_of_framework: bool,
) -> _Found:
    """Determine how to read the dataset, or raise InvalidArgument.

    `only_of_framework` is true if the caller passed an argument for a framework's DataLoader.
    """
    framework = _framework_of(dataset)
    if framework is None:
        if only_of_framework:
            raise InvalidArgument(
                f"{CALL}: num_workers and options are for the DataLoader of torch or Paddle, and this is a "
                f"{type(dataset).__name__}, which is indexed here: make it a Dataset of one of them"
            )
    elif uneven == "exact" and not collates:
        raise InvalidArgument(
            f'{CALL}: uneven="exact" may leave a rank an empty slice, of which the DataLoader of {framework} makes no '
            'batch: give collate_fn=, which makes one of an empty list too, or take uneven="pad" and drop the pads '
            "with pc.data.gather()"
        )
    arrays = None if framework is not None else _columns_of(dataset, collates=collates)
    return _Found(framework, arrays is not None, _length(dataset, arrays))


def _framework_of(dataset: object) -> str | None:
    """Return the framework that defines the Dataset class of `dataset`, or None."""
    for framework, module in FRAMEWORKS.items():
        loaded = sys.modules.get(module)
        if loaded is None or not isinstance(dataset, loaded.Dataset):
            continue
        if isinstance(dataset, loaded.IterableDataset):
            raise InvalidArgument(
                f"{CALL}: an IterableDataset has no indices to draw from: take pc.data.shard(dataset), or "
                "pc.data.scatter() where only one rank can read it"
            )
        return framework
    return None


def _columns_of(dataset: Any, *, collates: bool) -> list[Any] | None:  # noqa: ANN401
    """Return the arrays of a dataset of columns, or None for a sequence of samples.

    Raises InvalidArgument if the dataset may be either.
    """
    if isinstance(dataset, list):
        if not collates and _arrays_in(dataset) is not None:
            raise InvalidArgument(
                f"{CALL}: a list of arrays, or of dicts, lists or tuples of arrays, may be samples or columns: make a "
                "tuple of it if they are columns, and give collate_fn= if they are samples"
            )
        return None
    if isinstance(dataset, dict) and [*dataset] == [*range(len(dataset))]:
        may_be_columns = any(isinstance(each, list) or _is_array(each) for each in dataset.values())
        if not collates and (may_be_columns or _arrays_in(dataset) is not None):
            raise InvalidArgument(
                f"{CALL}: a dict with the keys 0, 1, ... of arrays or lists may be samples by their numbers or "
                "columns: give the columns names, and give collate_fn= if they are samples"
            )
        return None
    arrays = _arrays_in(dataset)
    if any(hasattr(array, "iloc") for array in arrays or ()):
        raise InvalidArgument(
            f"{CALL}: what pandas has is indexed by labels: pass x.to_numpy(), or a dict of columns that are arrays"
        )
    if arrays is None:
        members = list(_members(dataset))
        if isinstance(dataset, dict) or any(isinstance(each, list) or _has_array(each) for each in members):
            raise InvalidArgument(
                f"{CALL}: this {type(dataset).__name__} has something that is no array: it holds columns, which are "
                "arrays with one element per sample, so make arrays of the others too; samples come in a list"
            )
    elif _has_list(dataset):
        raise InvalidArgument(
            f"{CALL}: a list of arrays in a {type(dataset).__name__} may be samples or columns: make a tuple of it if "
            "they are columns, and one array if they are samples"
        )
    return arrays


def _is_array(value: object) -> bool:
    return bool(getattr(value, "shape", None))


def _members(value: Any) -> Iterable[Any]:  # noqa: ANN401
    return value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()


def _arrays_in(value: Any) -> list[Any] | None:  # noqa: ANN401
    """Return all arrays in a container, or None if it is empty or has other members."""
    if _is_array(value):
        return [value]
    found: list[Any] = []
    for member in _members(value):
        arrays = _arrays_in(member)
        if arrays is None:
            return None
        found += arrays
    return found or None


def _has_array(value: Any) -> bool:  # noqa: ANN401
    return _is_array(value) or any(_has_array(member) for member in _members(value))


def _has_list(value: Any) -> bool:  # noqa: ANN401
    return isinstance(value, list) or any(_has_list(member) for member in _members(value))


def _length(dataset: Any, arrays: list[Any] | None) -> int:  # noqa: ANN401
    if arrays is None:
        try:
            return len(dataset)
        except TypeError as error:
            raise InvalidArgument(
                f"{CALL}: {error}: a dataset has a length and is indexed by integers; pc.data.shard() "
                "takes any iterable"
            ) from None
    lengths = {int(array.shape[0]) for array in arrays}
    if len(lengths) != 1:
        raise InvalidArgument(
            f"{CALL}: arrays of lengths {sorted(lengths)} are no samples of one dataset: they must have "
            "one length along axis 0"
        )
    return lengths.pop()


def _indexed(columns: Any, index: Any) -> Any:  # noqa: ANN401
    if isinstance(columns, dict):
        return {key: _indexed(value, index) for key, value in columns.items()}
    if isinstance(columns, tuple):
        # a namedtuple's constructor takes its fields as separate arguments
        make = getattr(columns, "_make", type(columns))
        return make(_indexed(member, index) for member in columns)
    return columns[index]
