"""Decodes arguments of ProcessGroup's methods: lists of one tensor, options, sizes of parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor
from torch.distributed import AllreduceOptions, AllToAllOptions, BarrierOptions, ReduceOptions
from torch.distributed.distributed_c10d import GatherOptions

from pycollective.errors import InvalidArgument

__all__ = [
    "counts_of_rows",
    "gpu_of",
    "in_background",
    "one_tensor",
    "options_of",
    "parts_and_whole",
    "uneven_counts",
    "with_op",
    "with_root",
]


def in_background_of(kinds: Sequence[Callable[[], Any]]) -> Callable[[Any], bool]:
    """Returns a predicate of options: true if the caller continues before the call has completed.

    The function suits the torch version that has these kinds of options. Options of older versions
    (2.5) do not specify this; there torch itself waits for the Work if the caller must not
    continue.
    """
    if all(hasattr(kind(), "asyncOp") for kind in kinds):
        return attrgetter("asyncOp")  # the cheapest accessor
    return lambda opts: getattr(opts, "asyncOp", True)


in_background = in_background_of(
    [AllreduceOptions, AllToAllOptions, BarrierOptions, GatherOptions, ReduceOptions]
)


def one_tensor(tensors: Any) -> Tensor:
    """Returns the tensor, or the only one of a list. Raises InvalidArgument for several tensors."""
    if isinstance(tensors, Tensor):
        return tensors
    if len(tensors) != 1:
        raise InvalidArgument(
            f"a process has one device, so a call takes one tensor and not {len(tensors)}: make one call for each, or "
            f"all_reduce_coalesced"
        )
    return tensors[0]


def parts_and_whole(parts: Any, whole: Any) -> tuple[list[Tensor], Tensor]:
    """Returns all ranks' tensors and this rank's one, from `[[a, b]], [x]` or from `[a, b], x`."""
    if isinstance(whole, Tensor):
        return list(parts), whole
    return list(one_list(parts)), one_tensor(whole)


def gpu_of(opts: Any) -> torch.device | None:
    """Returns the GPU of a barrier with device_ids, or None.

    As in torch, only the first device of a process counts.
    """
    if not opts.device_ids:
        return None
    device: torch.device = opts.device or torch.device("cuda", opts.device_ids[0])
    return device if device.type == "cuda" else None


def one_list(lists: Sequence[Sequence[Tensor]]) -> Sequence[Tensor]:
    if len(lists) != 1:
        raise InvalidArgument(
            f"a process has one device, so a call takes one list of tensors, not {len(lists)}"
        )
    return lists[0]


def uneven_counts(parts: Sequence[Tensor]) -> list[int] | None:
    """Returns the number of elements of each part, or None if all parts are equally large."""
    counts = [part.numel() for part in parts]
    return counts if len(set(counts)) > 1 else None


def counts_of_rows(tensor: Tensor, lengths: Sequence[int], size: int) -> list[int]:
    """Returns the number of elements to or from each rank.

    `lengths` are numbers of rows. If it is empty, the ranks get equal parts.
    """
    if not lengths:
        if tensor.numel() % size or (tensor.dim() and tensor.size(0) % size):
            raise InvalidArgument(
                f"all_to_all_single: a tensor of shape {tuple(tensor.shape)} cannot be cut into {size} equal parts "
                f"along axis 0: give split sizes"
            )
        return [tensor.numel() // size] * size
    rows = tensor.size(0)
    row = tensor.numel() // rows if rows else 0
    if sum(lengths) != rows:
        raise InvalidArgument(
            f"all_to_all_single: split sizes {list(lengths)} add up to {sum(lengths)}, and the tensor has "
            f"{rows} rows"
        )
    return [row * length for length in lengths]


def options_of(kind: Callable[[], Any], given: Any) -> Any:
    """Returns options of that kind: those given, or new ones with the timeout that was given."""
    if given is None or isinstance(given, timedelta):
        opts = kind()
        if given is not None:
            opts.timeout = given
        return opts
    return given


def with_op(opts: Any, op: object, timeout: timedelta | None) -> Any:
    """Sets the operation and the timeout, if given, in the options, and returns the options."""
    if op is not None:
        opts.reduceOp = op
    return with_timeout(opts, timeout)


def with_root(opts: Any, root: int | None, timeout: timedelta | None) -> Any:
    """Sets the root (default rank 0) and the timeout in the options, if given, and returns them."""
    opts.rootRank = root or 0
    return with_timeout(opts, timeout)


def with_timeout(opts: Any, timeout: timedelta | None) -> Any:
    """Sets the timeout in the options, if it is given, and returns the options."""
    if timeout is not None:
        opts.timeout = timeout
    return opts
