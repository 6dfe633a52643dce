"""One rank reads the batches for all ranks, and each rank gets its slice."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from pycollective._core import Group
from pycollective.base.advice import advised
from pycollective.data.cut import slice_of
from pycollective.errors import CollectiveError, InvalidArgument
from pycollective.objects import objects
from pycollective.objects.object_codec.tags import PLAIN
from pycollective.objects.remote_error import record_of, reraised
from pycollective.training.rank0 import alone, members_of

__all__ = ["scatter"]

END = object()


@advised
def scatter(
    iterable: Iterable[Any] | None,
    *,
    root: int = 0,
    group: Group | None = None,
    timeout: float | None = None,
) -> Iterator[Any]:
    """Iterate slices of global batches that only the root reads.

    All ranks must loop, and leave the loop together. Batches are cut along the first axis into
    slices that differ in length by at most one; a slice may be empty. An exception of the root's
    iterable is raised on all ranks, after the batches before it. Batches are sent as objects.
    Without a world, batches are not cut.

    Parameters:
        iterable: on the root, an iterable of batches: an array, or a tuple, dict or list of
            arrays of the same length, also nested. None, numbers, strings and 0-d arrays in a
            batch are sent to every rank unchanged. A list of other objects is itself cut. A
            list of dicts or lists of arrays is refused, because its members may be samples or
            columns. Pass None on the other ranks, where the argument is ignored.
        root: the rank in the group that reads.
        group: the ranks that take part; default the world.
        timeout: seconds that the other ranks wait for a batch; default that of the group.

    Raises:
        InvalidArgument: a batch cannot be cut (raised on all ranks), or cannot be sent (the
            other ranks raise Aborted); the iterable makes a collective call, which would wait
            forever; there is no such root.
        PeerFailure: a rank has died.

    Example:
        >>> import numpy as np
        >>> import pycollective as pc
        >>> _ = pc.init()
        >>> for batch in pc.data.scatter([{"x": np.ones((4, 2)), "y": np.arange(4)}]):
        ...     print(batch["x"].shape, batch["y"])
        (4, 2) [0 1 2 3]
        >>> pc.shutdown()
    """
    members = members_of(group)
    size = 1 if members is None else members.size
    if not 0 <= root < size:
        raise InvalidArgument(f"pc.data.scatter(root={root}): the group has {size} ranks")
    if members is None or size == 1:
        return (_slices(batch, 1)[0] for batch in _given(iterable))
    if members.rank == root:
        return _to_others(members, root, iterable, timeout)
    return _from(members, root, timeout)


def _to_others(
    group: Group, root: int, iterable: Iterable[Any] | None, timeout: float | None
) -> Iterator[Any]:
    batches: Iterator[Any] | None = None
    while True:
        try:
            with alone("pc.data.scatter()"):
                batches = iter(_given(iterable)) if batches is None else batches
                batch = next(batches, END)
            parts = [] if batch is END else _slices(batch, group.size)
        except BaseException as error:
            # The caller gets the iterable's exception, even if sending it fails.
            with contextlib.suppress(CollectiveError):
                objects.scatter_object(
                    group, [("error", record_of(error))] * group.size, root, timeout=timeout
                )
            raise
        messages = [("part", part) for part in parts] or [("end", None)] * group.size
        objects.scatter_object(group, messages, root, timeout=timeout)
        if batch is END:
            return
        yield parts[root]


def _from(group: Group, root: int, timeout: float | None) -> Iterator[Any]:
    while True:
        word, value = objects.scatter_object(group, None, root, timeout=timeout)
        if word == "end":
            return
        if word == "error":
            raise reraised(value, root)
        yield value


def _given(iterable: Iterable[Any] | None) -> Iterable[Any]:
    if iterable is None:
        raise InvalidArgument("pc.data.scatter: the root must give the batches, not None")
    return iterable


def _slices(batch: Any, size: int) -> list[Any]:  # noqa: ANN401  arrays of any library
    lengths = set(_lengths(batch))
    if len(lengths) != 1:
        found = (
            f"arrays of lengths {sorted(lengths)}" if lengths else f"a {type(batch).__name__} without arrays"
        )
        raise InvalidArgument(f"pc.data.scatter: {found} cannot be cut as one batch")
    (length,) = lengths
    bounds = [slice_of(rank, length, size) for rank in range(size)]
    return [_sliced(batch, begin, end) for begin, end in bounds]


def _lengths(batch: Any) -> Iterator[int]:  # noqa: ANN401
    """Yield the length of each array or list to be cut in the batch."""
    if _is_whole(batch):
        return
    if _is_array(batch):
        yield batch.shape[0]
    elif (members := _together(batch)) is not None:
        for member in members:
            yield from _lengths(member)
    elif isinstance(batch, list):
        yield len(batch)
    else:
        raise InvalidArgument(
            f"pc.data.scatter: a {type(batch).__name__} in a batch cannot be cut over ranks"
        )


def _sliced(batch: Any, begin: int, end: int) -> Any:  # noqa: ANN401
    if _is_whole(batch):
        return batch
    if isinstance(batch, dict):
        return {key: _sliced(value, begin, end) for key, value in batch.items()}
    if (members := _together(batch)) is not None:
        cut = [_sliced(member, begin, end) for member in members]
        return cut if isinstance(batch, list) else tuple(cut)
    return batch[begin:end]


def _together(batch: Any) -> list[Any] | None:  # noqa: ANN401
    """Return the members if each is cut separately, or None if the batch is cut as a whole."""
    if isinstance(batch, dict):
        return list(batch.values())
    if isinstance(batch, tuple):
        return list(batch)
    if not isinstance(batch, list):
        return None
    if any(_is_array(each) for each in batch):  # columns, which torch's collate function returns as a list
        return batch
    if any(isinstance(each, (dict, list)) and _has_arrays(each) for each in batch):
        raise InvalidArgument(
            "pc.data.scatter: a list of dicts or lists of arrays may be samples or columns: make tuples of those in it "
            "if they are samples, and of the list itself if they are columns"
        )
    return None


def _has_arrays(value: Any) -> bool:  # noqa: ANN401
    members = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    if PLAIN.issuperset(map(type, members)):  # fast path for a long list of numbers
        return _is_array(value)
    return any(_has_arrays(each) for each in members)


def _is_array(value: object) -> bool:
    return bool(getattr(value, "shape", None))


def _is_whole(value: object) -> bool:
    """Return whether every rank gets the value uncut."""
    return (
        value is None
        or isinstance(value, (int, float, complex, str, bytes))
        or getattr(value, "shape", None) == ()
    )
