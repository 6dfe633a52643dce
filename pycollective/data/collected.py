"""Gathers the results for each rank's samples on all ranks, in the order of the dataset."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np

from pycollective._core import Group
from pycollective.base.advice import advised
from pycollective.base.clock import Clock
from pycollective.calls.blocks import check_block, library_for
from pycollective.data.agreement import check_alike, on_all
from pycollective.data.epochs import Epochs
from pycollective.data.order import Indices
from pycollective.data.place import Place
from pycollective.errors import InvalidArgument
from pycollective.objects import objects
from pycollective.runtime.lifetime import check_timeout

__all__ = ["gather"]

CALL = "pc.data.gather"


@advised
def gather(
    values: Any,  # noqa: ANN401
    sampler: Epochs,
    *,
    group: Group | None = None,
    timeout: float | None = None,
) -> Any:  # noqa: ANN401
    """Return on all ranks the results for all samples of a sampler's last iteration.

    There are exactly n results, in the order of the dataset, one for each sample. Results for
    padding samples are dropped. All ranks must call it.

    Parameters:
        values: one row or object for each sample that this rank got, in the order of the samples:
            an array (n_of_this_rank, ...), a list of objects, or a tuple or dict of these. Not
            changed.
        sampler: the sampler of these samples; its last iteration must have covered a whole
            epoch.
        group: the group that the sampler was made for; default the world.
        timeout: seconds; default that of the group.

    Returns:
        The same structure as `values`, with n rows or objects. Arrays belong to the library of
        `values`.

    Raises:
        InvalidArgument: the number of values differs from the number of samples, or the sampler
            did not hand out every sample; raised on all ranks.
        CollectiveMismatch: the ranks pass values of different kinds, or for different epochs.

    Example:
        >>> import numpy as np
        >>> import pycollective as pc
        >>> _ = pc.init()
        >>> sampler = pc.data.BatchSampler(5, global_batch_size=2)
        >>> squares = np.concatenate([np.array(batch) ** 2 for batch in sampler])  # of the 6th, which is a pad, too
        >>> pc.data.gather(squares, sampler)
        array([ 0,  1,  4,  9, 16])
        >>> pc.shutdown()
    """
    members = Place.of(CALL, None, None, group).group
    assert members is not None
    check_timeout(timeout)
    clock = Clock(timeout)
    check_alike(CALL, on_all(members, CALL, lambda: _facts(values, sampler, members), timeout=clock.left_s()))
    positions = [sampler._positions(rank) for rank in range(members.size)]
    counts = [len(each) for each in positions]
    rows = _row_of_each_sample(sampler, np.concatenate(positions))
    return _gathered(members, values, counts, rows, clock)


def _facts(values: Any, sampler: Epochs, group: Group) -> dict[str, object]:  # noqa: ANN401
    here = sampler._iteration
    if (sampler.rank, sampler.size) != (group.rank, group.size):
        raise InvalidArgument(
            f"pc.data.gather: the sampler is for rank {sampler.rank} of {sampler.size}, the group has this one as rank "
            f"{group.rank} of {group.size}"
        )
    if here is None or here.start:
        raise InvalidArgument("pc.data.gather: the sampler's last iteration did not go through a whole epoch")
    if sampler._order.replacement:
        raise InvalidArgument("pc.data.gather: with replacement= there is not one value for each sample")
    if (left := sampler._order.n - sampler._cut.end()) > 0:
        raise InvalidArgument(f'pc.data.gather: uneven="drop" left out {left} samples: take "pad" or "exact"')
    return {"the epoch": here.epoch, "the values": _kind(values, len(sampler._positions(group.rank)))}


def _kind(values: Any, count: int) -> object:  # noqa: ANN401
    if isinstance(values, dict):
        return {key: _kind(value, count) for key, value in values.items()}
    if isinstance(values, tuple):
        return tuple(_kind(value, count) for value in values)
    is_list = isinstance(values, list)
    shape = (len(values),) if is_list else tuple(getattr(values, "shape", ()))
    if not shape or shape[0] != count:
        what = "a list" if is_list else f"a {type(values).__name__}"
        raise InvalidArgument(
            f"pc.data.gather: this rank got {count} samples, and {what} of shape {shape} has not one value for each: "
            "join the results of all batches along the first axis"
        )
    if is_list:
        return "a list"
    library = library_for(CALL, "values", values)
    # checked before the collective call, so that all ranks raise the error
    check_block(CALL, "values", library, values)
    return f"{library.dtype(values)} rows of shape {shape[1:]}"


def _row_of_each_sample(sampler: Epochs, positions: Indices) -> Indices:
    """Return for each sample the row of its value in the concatenated values of all ranks."""
    assert sampler._iteration is not None
    samples = sampler._order.of(sampler._iteration.epoch)
    own = np.flatnonzero(positions < sampler._order.n)  # the remaining positions are pads
    rows = np.empty(sampler._order.n, np.int64)
    rows[samples(positions[own])] = own
    return rows


def _gathered(group: Group, values: Any, counts: list[int], rows: Indices, clock: Clock) -> Any:  # noqa: ANN401
    if isinstance(values, dict):  # sorted by key, because the dicts of two ranks may have different orders
        found = {key: _gathered(group, values[key], counts, rows, clock) for key in sorted(values, key=repr)}
        return {key: found[key] for key in values}
    if isinstance(values, tuple):
        return tuple(_gathered(group, value, counts, rows, clock) for value in values)
    if isinstance(values, list):
        everything = list(
            chain.from_iterable(objects.allgather_object(group, values, timeout=clock.left_s()))
        )
        return [everything[row] for row in rows.tolist()]
    return group.allgather(values, counts=counts, timeout=clock.left_s())[rows]
