"""Samplers for this rank's samples, one by one or in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import Any

import numpy as np
import numpy.typing as npt

from pycollective._core import Group
from pycollective.base.advice import advised
from pycollective.data.cut import Cut, Uneven, check_uneven, slice_of
from pycollective.data.epochs import Epochs
from pycollective.data.order import Indices, Order
from pycollective.data.place import Place
from pycollective.errors import InvalidArgument

__all__ = ["BatchSampler", "Sampler"]

AT_ONCE = 1 << 14  # samples that are looked up at a time


class Sampler(Epochs):
    """This rank's samples, one by one: rank r has positions r, r + size, r + 2 size, ...

    Pass it to torch's `DataLoader(sampler=)`, or loop over it. The order is a pure function of
    (seed, epoch), on any number of ranks. Each iteration uses the next epoch, unless set_epoch()
    specifies one. All ranks of the group must make the sampler together: they compare its
    arguments. With rank= and size= nothing is compared, and no world is needed.

    Parameters:
        n_or_dataset: the number of samples, or an object with that length.
        shuffle: use another order in each epoch; otherwise the order is always 0, 1, 2, ...
        replacement: draw n samples, each from all n, so that a sample may occur repeatedly.
        weights: shape (n,), the relative probability of each sample; requires replacement.
            Default: all equal.
        seed: from 0; the same on all ranks.
        uneven: the handling if the number of ranks does not divide n. "pad": all ranks have equally
            many samples, and the first samples are repeated; "drop": all ranks have equally many
            samples, and the last samples are left out; "exact": each sample occurs once, and some
            ranks have one sample less.
        rank, size: this rank, and the number of ranks; default those of the group.
        group: the ranks that share the samples; default the world.

    Raises:
        InvalidArgument: an argument is invalid, or no samples would remain; raised on all
            ranks.
        CollectiveMismatch: the ranks have different arguments, or datasets of different
            lengths.
        NotInitialized: there is no world, and rank= and size= are not given.

    Example:
        >>> import pycollective as pc
        >>> sampler = pc.data.Sampler(10, shuffle=True, rank=0, size=4)
        >>> list(sampler), list(sampler), len(sampler)
        ([0, 8, 6], [5, 2, 6], 3)
    """

    @advised
    def __init__(
        self,
        n_or_dataset: int | Sized,
        *,
        shuffle: bool = False,
        replacement: bool = False,
        weights: npt.ArrayLike | None = None,
        seed: int = 0,
        uneven: Uneven = "pad",
        rank: int | None = None,
        size: int | None = None,
        group: Group | None = None,
    ) -> None:
        call = "pc.data.Sampler"
        place = Place.of(call, rank, size, group)

        def make() -> tuple[Order, Cut]:
            order = Order(
                call, n_or_dataset, shuffle=shuffle, replacement=replacement, weights=weights, seed=seed
            )
            return order, _cut(call, order.n, place.size, place.size, uneven)

        super().__init__(call, place, make)

    def __len__(self) -> int:
        """Return this rank's sample count for a whole epoch, even if the next epoch is partial."""
        return self._steps()

    def __iter__(self) -> Iterator[int]:
        """Iterate the next epoch, or the rest of the epoch after load_state_dict()."""
        here = self._begin()
        samples = self._order.of(here.epoch)
        positions = self._own(self.rank, here.start)
        for begin in range(0, len(positions), AT_ONCE):
            some = positions[begin : begin + AT_ONCE]
            for sample in samples(_array(some)).tolist():
                here.drawn += 1
                yield sample
        here.drawn += 1  # also puts a rank with one sample less than other ranks at the end of the epoch

    def _own(self, rank: int, start: int = 0) -> range:
        return range(start + rank, self._cut.end(start), self.size)

    def _steps(self, start: int = 0) -> int:
        return len(self._own(self.rank, start))

    def _steps_of_one(self, loader: object) -> int:
        if loader is self:
            return 1
        try:
            batches: Any = loader.batch_sampler  # type: ignore[attr-defined]
            return 1 if batches is None else int(batches.batch_size)
        except AttributeError:
            raise InvalidArgument(
                f"counting: a {type(loader).__name__} does not say how many samples are in a batch, as a DataLoader "
                "does: say state_dict(done=), or take pc.data.BatchSampler"
            ) from None

    def _positions(self, rank: int) -> Indices:
        return _array(self._own(rank))


class BatchSampler(Epochs):
    """This rank's slices of global batches, as lists of samples.

    Pass it to torch's `DataLoader(batch_sampler=)`, or loop over it. Global batch b has the same
    samples in the same order on any number of ranks, as long as its size is the same: rank r has
    the r-th slice of it. All ranks have the same number of batches, so the loop may make collective
    calls. Everything else is as in Sampler.

    Parameters:
        n_or_dataset: the number of samples, or an object with that length.
        global_batch_size: samples of all ranks together. The number of ranks must divide it,
            unless uneven="exact".
        batch_size_per_rank: samples of one rank; pass this or global_batch_size.
        shuffle, replacement, weights, seed: as in Sampler.
        uneven: the handling of a last batch that is too short. "pad": the first samples of the
            epoch fill it, repeatedly if necessary; "drop": it is left out; "exact": each sample
            occurs once. Slices then differ by at most one, and may be empty.
        rank, size, group: as in Sampler.

    Raises:
        InvalidArgument: an argument is invalid, the number of ranks does not divide the batch,
            or no samples would remain; raised on all ranks.
        CollectiveMismatch: the ranks have different arguments, or datasets of different
            lengths.
        NotInitialized: there is no world, and rank= and size= are not given.

    Example:
        >>> import pycollective as pc
        >>> list(pc.data.BatchSampler(10, global_batch_size=4, rank=1, size=2))
        [[2, 3], [6, 7], [0, 1]]
        >>> list(pc.data.BatchSampler(10, global_batch_size=4, uneven="exact", rank=1, size=2))
        [[2, 3], [6, 7], [9]]
    """

    @advised
    def __init__(
        self,
        n_or_dataset: int | Sized,
        *,
        global_batch_size: int | None = None,
        batch_size_per_rank: int | None = None,
        shuffle: bool = False,
        replacement: bool = False,
        weights: npt.ArrayLike | None = None,
        seed: int = 0,
        uneven: Uneven = "pad",
        rank: int | None = None,
        size: int | None = None,
        group: Group | None = None,
    ) -> None:
        call = "pc.data.BatchSampler"
        place = Place.of(call, rank, size, group)

        def make() -> tuple[Order, Cut]:
            order = Order(
                call, n_or_dataset, shuffle=shuffle, replacement=replacement, weights=weights, seed=seed
            )
            batch = _global_batch(call, global_batch_size, batch_size_per_rank, place.size)
            return order, _cut(call, order.n, batch, place.size, uneven)

        super().__init__(call, place, make)

    def __len__(self) -> int:
        """Return the number of batches in a whole epoch, even if the next epoch is partial."""
        return self._steps()

    def __iter__(self) -> Iterator[list[int]]:
        """Iterate the next epoch, or the rest of the epoch after load_state_dict()."""
        here = self._begin()
        samples = self._order.of(here.epoch)
        for step in range(self._steps(here.start)):
            here.drawn += 1
            yield samples(_array(self._cut.part(step, self.rank, here.start))).tolist()

    def _steps(self, start: int = 0) -> int:
        return self._cut.steps(start)

    def _steps_of_one(self, loader: object) -> int:
        return 1

    def _positions(self, rank: int) -> Indices:
        whole, batch = self._cut.end() // self._cut.batch, self._cut.batch
        first, behind = slice_of(rank, batch, self.size)
        slices = np.arange(whole)[:, np.newaxis] * batch + np.arange(first, behind)
        rest = [_array(self._cut.part(step, rank)) for step in range(whole, len(self))]
        return np.concatenate([slices.ravel(), *rest])


def _global_batch(call: str, whole: int | None, per_rank: int | None, size: int) -> int:
    if (whole is None) == (per_rank is None):
        raise InvalidArgument(f"{call}: give global_batch_size= or batch_size_per_rank=, and not both")
    given: Any = per_rank if whole is None else whole
    if not isinstance(given, (int, np.integer)) or isinstance(given, bool) or given < 1:
        raise InvalidArgument(f"{call}: a batch of {given!r} samples cannot be")
    return int(given) * (size if whole is None else 1)


def _cut(call: str, n: int, batch: int, size: int, uneven: Uneven) -> Cut:
    check_uneven(call, uneven)
    cut = Cut(n, batch, size, uneven)
    if batch % size and uneven != "exact":
        lower = batch // size * size
        choices = f"{lower} or {lower + size}" if lower else f"{size}"
        raise InvalidArgument(
            f"{call}: {size} ranks do not divide global_batch_size={batch}: take {choices}, or "
            'uneven="exact", with slices that differ by one'
        )
    if n and not cut.steps():
        raise InvalidArgument(
            f'{call}: uneven="drop" leaves nothing of {n} samples: a global batch has {batch}, on {size} ranks'
        )
    return cut


def _array(positions: range) -> Indices:
    return np.arange(positions.start, positions.stop, positions.step)
