"""A loader that shards by itself: the dataset's framework reads the samples, and a BatchSampler says which."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from pycollective._core import Group
from pycollective.advice import advised
from pycollective.data.cut import Uneven
from pycollective.data.samplers import BatchSampler
from pycollective.errors import InvalidArgument

__all__ = ["DataLoader"]

# The framework of a dataset, by the module that has its classes: what reads it there.
FRAMEWORKS = {"torch": "torch.utils.data", "paddle": "paddle.io"}


class DataLoader:
    """This rank's batches of a dataset that all ranks have: nothing else of a program needs to know about ranks.

        loader = pc.data.DataLoader(dataset, global_batch_size=256, shuffle=True)
        for epoch in range(10):
            for inputs, targets in loader:  # this rank's slice of each global batch; the next epoch each time
                ...

    Parameters:
        dataset: a Dataset of torch or Paddle, which the DataLoader of that framework reads; an array or tensor, or a
            tuple, list or dict of such with one length, which are indexed along axis 0; or anything with a length
            and integer indices, from which lists of samples come. The same on all ranks.
        global_batch_size: samples of all ranks together. The ranks must divide it, unless uneven="exact".
        batch_size_per_rank: samples of one rank; this or global_batch_size.
        shuffle: another order in each epoch.
        seed: from 0; the same on all ranks.
        uneven: what becomes of a last batch that is too short: "pad", "drop" or "exact", as in BatchSampler.
        num_workers: how many processes read ahead, in a framework's DataLoader.
        collate_fn: makes a batch of a list of samples; default that of the framework, and for others the list itself.
        options: more arguments for the framework's DataLoader, such as {"pin_memory": True}.
        group: whose ranks share the samples; default the world.

    Attributes:
        sampler: the BatchSampler that says which samples come.

    Raises:
        InvalidArgument: one of these cannot be right; what samplers refuse is raised on all ranks.
        CollectiveMismatch: the ranks have other arguments, or datasets of other lengths.
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
        framework = _framework_of(dataset)
        if framework is None and (num_workers or options):
            raise InvalidArgument(
                "pc.data.DataLoader: num_workers and options are for the DataLoader of torch or Paddle, and this is a "
                f"{type(dataset).__name__}, which is indexed here: make it a Dataset of one of them"
            )
        arrays = None if framework is not None or collate_fn is not None else _arrays_of(dataset)
        self.sampler = BatchSampler(
            _length(dataset, arrays),
            global_batch_size=global_batch_size,
            batch_size_per_rank=batch_size_per_rank,
            shuffle=shuffle,
            seed=seed,
            uneven=uneven,
            group=group,
        )
        self._batches: Iterable[Any]
        if framework is not None:
            more = dict(options or {})
            if collate_fn is not None:
                more["collate_fn"] = collate_fn
            make = sys.modules[FRAMEWORKS[framework]].DataLoader
            self._batches = make(dataset, batch_sampler=self.sampler, num_workers=num_workers, **more)
        elif arrays is not None:
            self._batches = _Batches(
                self.sampler, lambda batch: _indexed(dataset, np.asarray(batch, np.int64))
            )
        else:
            collate = collate_fn or (lambda samples: samples)
            self._batches = _Batches(self.sampler, lambda batch: collate([dataset[each] for each in batch]))

    def __len__(self) -> int:
        """How many batches an epoch has, on every rank."""
        return len(self.sampler)

    def __iter__(self) -> Iterator[Any]:
        """Go through the next epoch, or what is left of it after load_state_dict()."""
        return self.sampler.counting(self._batches)

    @property
    def epoch(self) -> int:
        """The epoch that is being gone through, or was last; before an iteration the one that it will have."""
        return self.sampler.epoch

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration go through this epoch; without it each iteration is the next one."""
        self.sampler.set_epoch(epoch)

    def state_dict(self) -> dict[str, int | str]:
        """Return where the program is, within an epoch too; the same on all ranks."""
        return self.sampler.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Make the next iteration begin where the state was taken, on any number of ranks."""
        self.sampler.load_state_dict(state)


class _Batches:
    """What comes of each batch of indices, made when it is asked for."""

    def __init__(self, sampler: BatchSampler, make: Callable[[list[int]], Any]) -> None:
        self._sampler = sampler
        self._make = make

    def __iter__(self) -> Iterator[Any]:
        return map(self._make, self._sampler)


def _framework_of(dataset: object) -> str | None:
    """The framework whose DataLoader reads it: what is no Dataset of one that is loaded has none."""
    for framework, module in FRAMEWORKS.items():
        loaded = sys.modules.get(module)
        if loaded is None or not isinstance(dataset, loaded.Dataset):
            continue
        if isinstance(dataset, loaded.IterableDataset):
            raise InvalidArgument(
                "pc.data.DataLoader: an IterableDataset has no indices to draw from: take pc.data.shard(dataset), or "
                "pc.data.scatter() where only one rank can read it"
            )
        return framework
    return None


def _arrays_of(dataset: Any) -> list[Any] | None:  # noqa: ANN401
    """The arrays in it that are indexed alike; None if it is something else."""
    if getattr(dataset, "shape", None):
        return [dataset]
    members = [*dataset.values()] if isinstance(dataset, dict) else dataset
    if not isinstance(members, (list, tuple)) or not members:
        return None
    found = [_arrays_of(member) for member in members]
    if any(each is None for each in found):
        return None
    return [array for each in found if each is not None for array in each]


def _length(dataset: Any, arrays: list[Any] | None) -> int:  # noqa: ANN401
    if arrays is None:
        try:
            return len(dataset)
        except TypeError as error:
            raise InvalidArgument(
                f"pc.data.DataLoader: {error}: a dataset has a length and is indexed by integers; pc.data.shard() "
                "takes any iterable"
            ) from None
    lengths = {int(array.shape[0]) for array in arrays}
    if len(lengths) != 1:
        raise InvalidArgument(
            f"pc.data.DataLoader: arrays of lengths {sorted(lengths)} are no samples of one dataset: they must have "
            "one length along axis 0"
        )
    return lengths.pop()


def _indexed(dataset: Any, indices: Any) -> Any:  # noqa: ANN401
    if isinstance(dataset, dict):
        return {key: _indexed(value, indices) for key, value in dataset.items()}
    if isinstance(dataset, (list, tuple)):
        return type(dataset)(_indexed(member, indices) for member in dataset)
    return dataset[indices]
