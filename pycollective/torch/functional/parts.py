"""allgather and reduce_scatter, gather and scatter, which are adjoint pairs, and alltoall."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pycollective.base.advice import advised
from pycollective.errors import InvalidArgument
from pycollective.torch.functional.live_groups import group_at, number_of, size_at
from pycollective.torch.functional.operation import Operation
from pycollective.torch.functional.reductions import linear

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from pycollective._core import Group, OpName

__all__ = ["allgather", "alltoall", "gather", "reduce_scatter", "scatter"]


@advised
def allgather(
    x: Tensor,
    *,
    axis: int = 0,
    group: Group | ProcessGroup | None = None,
    timeout: float | None = None,
) -> Tensor:
    """Joins the tensors of all ranks along an axis; every rank gets the result.

    Args:
        x: the same shape and dtype on every rank, with at least one axis. It is only read.
        axis: the axis along which they are joined, in the order of the ranks.
        group: the ranks that take part; default the world. Ranks outside a subgroup hold None for
            it, and None means the world, so they must not call this.
        timeout: seconds, separately for the call and for its adjoint; default that of init().

    Returns:
        A new contiguous tensor, `size` times as long in `axis`. Its adjoint is reduce_scatter()
        with "sum".

    Raises:
        InvalidArgument: `x` is 0-d, or has no such axis.
        CollectiveError: as pycollective.allgather().

    Example:
        >>> import torch, pycollective as pc
        >>> from pycollective.torch import functional as F
        >>> _ = pc.init()
        >>> x = torch.ones(2, 3, requires_grad=True)
        >>> F.allgather(x, axis=1).sum().backward()
        >>> x.grad.shape
        torch.Size([2, 3])
        >>> pc.shutdown()
    """
    _check_axis("allgather", x, axis)
    return _allgather(x, axis, number_of(group), timeout)


@advised
def reduce_scatter(
    x: Tensor,
    op: OpName = "sum",
    *,
    axis: int = 0,
    group: Group | ProcessGroup | None = None,
    timeout: float | None = None,
) -> Tensor:
    """Combines the tensors of all ranks; each rank gets its part of the result.

    Args:
        x: the same shape and dtype on every rank; its length in `axis` is a multiple of `size`. It
            is only read.
        op: as for pycollective.reduce_scatter(); "sum" and "avg" have a gradient.
        axis: the axis along which the result is cut into equal parts, in the order of the ranks.
        group: the ranks that take part; default the world. Ranks outside a subgroup hold None for
            it, and None means the world, so they must not call this.
        timeout: seconds, separately for the call and for its adjoint; default that of init().

    Returns:
        A new contiguous tensor, `1 / size` as long in `axis`. Its adjoint is allgather(), divided
        by `size` for "avg".

    Raises:
        InvalidArgument: `x` is 0-d, has no such axis, or cannot be cut into equal parts.
        Unsupported: `x` requires grad and `op` has no gradient.
        CollectiveError: as pycollective.reduce_scatter().

    Example:
        >>> import torch, pycollective as pc
        >>> from pycollective.torch import functional as F
        >>> _ = pc.init()
        >>> F.reduce_scatter(torch.ones(2, 3)).shape
        torch.Size([2, 3])
        >>> pc.shutdown()
    """
    _check_axis("reduce_scatter", x, axis)
    return _reduce_scatter(x, linear("reduce_scatter", x, op), axis, number_of(group), timeout)


@advised
def gather(
    x: Tensor,
    root: int = 0,
    *,
    axis: int = 0,
    group: Group | ProcessGroup | None = None,
    timeout: float | None = None,
) -> Tensor:
    """Joins the tensors of all ranks along an axis; the root gets the result.

    Args:
        x: the same shape and dtype on every rank, with at least one axis. It is only read.
        root: the rank that gets the result.
        axis: the axis along which they are joined, in the order of the ranks.
        group: the ranks that take part; default the world. Ranks outside a subgroup hold None for
            it, and None means the world, so they must not call this.
        timeout: seconds, separately for the call and for its adjoint; default that of init().

    Returns:
        A new contiguous tensor, `size` times as long in `axis`: the result on the root, zeros
        elsewhere. Its adjoint is scatter() from the root; gradients of the zeros are ignored.

    Raises:
        InvalidArgument: `x` is 0-d, or has no such axis.
        CollectiveError: as pycollective.gather().

    Example:
        >>> import torch, pycollective as pc
        >>> from pycollective.torch import functional as F
        >>> _ = pc.init()
        >>> x = torch.ones(2, 3, requires_grad=True)
        >>> F.gather(x, axis=1).sum().backward()
        >>> x.grad.shape
        torch.Size([2, 3])
        >>> pc.shutdown()
    """
    _check_axis("gather", x, axis)
    return _gather(x, axis, root, number_of(group), timeout)


@advised
def scatter(
    x: Tensor,
    root: int = 0,
    *,
    axis: int = 0,
    group: Group | ProcessGroup | None = None,
    timeout: float | None = None,
) -> Tensor:
    """Gives every rank its part of the root's tensor.

    Args:
        x: the same shape and dtype on every rank; its values are used only on the root. Its length
            in `axis` is a multiple of `size`. It is only read.
        root: the rank that provides the tensor.
        axis: the axis along which it is cut into equal parts, in the order of the ranks.
        group: the ranks that take part; default the world. Ranks outside a subgroup hold None for
            it, and None means the world, so they must not call this.
        timeout: seconds, separately for the call and for its adjoint; default that of init().

    Returns:
        A new contiguous tensor, `1 / size` as long in `axis`. Its adjoint is gather() to the root,
        and zeros on the other ranks. If `x` requires grad on the root, it must require grad on the
        other ranks, too.

    Raises:
        InvalidArgument: `x` is 0-d, has no such axis, or cannot be cut into equal parts.
        CollectiveError: as pycollective.scatter().

    Example:
        >>> import torch, pycollective as pc
        >>> from pycollective.torch import functional as F
        >>> _ = pc.init()
        >>> F.scatter(torch.ones(2, 3)).shape
        torch.Size([2, 3])
        >>> pc.shutdown()
    """
    _check_axis("scatter", x, axis)
    return _scatter(x, axis, root, number_of(group), timeout)


@advised
def alltoall(
    x: Tensor,
    *,
    counts: Sequence[int] | None = None,
    recv_counts: Sequence[int] | None = None,
    axis: int = 0,
    concat_axis: int | None = None,
    group: Group | ProcessGroup | None = None,
    timeout: float | None = None,
) -> Tensor:
    """Sends each rank its part of `x`, and joins the parts from all ranks.

    Args:
        x: cut along `axis`, into equal parts or into those of `counts`. It is only read.
        counts: the length of the part for each rank; it requires `recv_counts`.
        recv_counts: the length of the part from each rank; given together with `counts`, or not at
            all.
        axis: the axis along which `x` is cut and the result joined, in the order of the ranks.
        concat_axis: the axis along which the result is joined, if it is another one, as between
            heads and positions.
        group: the ranks that take part; default the world. Ranks outside a subgroup hold None for
            it, and None means the world, so they must not call this.
        timeout: seconds, separately for the call and for its adjoint; default that of init().

    Returns:
        A new contiguous tensor. In `axis` it is as long as `x`, or as the sum of `recv_counts`.
        With `concat_axis` the parts are joined there. Its adjoint is alltoall() with the counts
        exchanged.

    Raises:
        InvalidArgument: `x` is 0-d, has no such axis, or cannot be cut this way; or one of the
            counts is missing. After the call, in which the other ranks take part: the parts have
            different lengths, and do not fit in `concat_axis`.
        CollectiveError: as pycollective.alltoall().

    Example:
        >>> import torch, pycollective as pc
        >>> from pycollective.torch import functional as F
        >>> _ = pc.init()
        >>> F.alltoall(torch.arange(3.0), counts=[3], recv_counts=[3])
        tensor([0., 1., 2.])
        >>> pc.shutdown()
    """
    _check_axis("alltoall", x, axis)
    if (counts is None) != (recv_counts is None):
        raise InvalidArgument(
            "alltoall: counts and recv_counts go together: a graph has no place for a result of a size that "
            "only the call finds out"
        )
    if concat_axis is not None:
        _check_axis("alltoall", x, concat_axis)
    number = number_of(group)
    result = _alltoall(x, axis, counts, recv_counts, number, timeout)
    if concat_axis is None:
        return result
    # Checked only after the call, because ranks with parts of equal length make the call.
    if concat_axis % x.dim() != axis % x.dim() and len(set(recv_counts or ())) > 1:
        raise InvalidArgument(
            f"alltoall: parts of the lengths {list(recv_counts or ())} in axis {axis} cannot stand side by side in "
            f"axis {concat_axis}: leave concat_axis out, or pad them to one length"
        )
    parts = (
        recv_counts if recv_counts is not None else [result.shape[axis] // size_at(number)] * size_at(number)
    )
    return torch.cat(result.split(list(parts), axis), concat_axis)


def _check_axis(call: str, x: Tensor, axis: int) -> None:
    if not -x.dim() <= axis < x.dim():
        raise InvalidArgument(f"{call}: x has {x.dim()} axes, and no axis {axis}")


def _of_length(x: Tensor, axis: int, length: int) -> Tensor:
    sizes = list(x.shape)
    sizes[axis] = length
    return x.new_empty(sizes)


def _run_allgather(x: Tensor, axis: int, group: int, timeout: float | None) -> Tensor:
    return group_at(group).allgather(x, axis=axis, timeout=timeout)


def _run_reduce_scatter(x: Tensor, op: OpName, axis: int, group: int, timeout: float | None) -> Tensor:
    return group_at(group).reduce_scatter(x, op, axis=axis, timeout=timeout)


def _run_gather(x: Tensor, axis: int, root: int, group: int, timeout: float | None) -> Tensor:
    joined: Tensor | None = group_at(group).gather(x, root, axis=axis, timeout=timeout)
    return _joined(x, axis, root, group, timeout).zero_() if joined is None else joined


def _joined(x: Tensor, axis: int, root: int, group: int, timeout: float | None) -> Tensor:
    return _of_length(x, axis, x.shape[axis] * size_at(group))


def _run_scatter(x: Tensor, axis: int, root: int, group: int, timeout: float | None) -> Tensor:
    ranks = group_at(group)
    if x.shape[axis] % ranks.size:
        raise InvalidArgument(
            f"scatter: x has length {x.shape[axis]} in axis {axis}, which {ranks.size} ranks cannot share equally"
        )
    part = _part(x, axis, root, group, timeout)
    ranks.scatter(x if ranks.rank == root else None, root, out=part, axis=axis, timeout=timeout)
    return part


def _part(x: Tensor, axis: int, root: int, group: int, timeout: float | None) -> Tensor:
    return _of_length(x, axis, x.shape[axis] // size_at(group))


def _all_parts(g: Tensor, op: str, axis: int, group: int, timeout: float | None) -> Tensor:
    gradient = _allgather(g, axis, group, timeout)
    return gradient / size_at(group) if op == "avg" else gradient


def _run_alltoall(
    x: Tensor,
    axis: int,
    counts: list[int] | None,
    recv_counts: list[int] | None,
    group: int,
    timeout: float | None,
) -> Tensor:
    return group_at(group).alltoall(x, counts=counts, recv_counts=recv_counts, axis=axis, timeout=timeout)


def _fake_alltoall(
    x: Tensor, axis: int, counts: list[int] | None, recv_counts: list[int] | None, *rest: object
) -> Tensor:
    return _of_length(x, axis, x.shape[axis] if recv_counts is None else sum(recv_counts))


_allgather: Operation = Operation(
    "allgather(Tensor x, int axis, int group, float? timeout) -> Tensor",
    run=_run_allgather,
    fake=lambda x, axis, group, timeout: _of_length(x, axis, x.shape[axis] * size_at(group)),
    adjoint=lambda g, *parameters: _reduce_scatter(g, "sum", *parameters),
)
_reduce_scatter: Operation = Operation(
    "reduce_scatter(Tensor x, str op, int axis, int group, float? timeout) -> Tensor",
    run=_run_reduce_scatter,
    fake=lambda x, op, axis, group, timeout: _of_length(x, axis, x.shape[axis] // size_at(group)),
    adjoint=_all_parts,
)
_gather: Operation = Operation(
    "gather(Tensor x, int axis, int root, int group, float? timeout) -> Tensor",
    run=_run_gather,
    fake=_joined,
    adjoint=lambda g, *parameters: _scatter(g, *parameters),
)
_scatter: Operation = Operation(
    "scatter(Tensor x, int axis, int root, int group, float? timeout) -> Tensor",
    run=_run_scatter,
    fake=_part,
    adjoint=lambda g, *parameters: _gather(g, *parameters),
)
_alltoall: Operation = Operation(
    "alltoall(Tensor x, int axis, SymInt[]? counts, SymInt[]? recv_counts, int group, float? timeout) -> Tensor",
    run=_run_alltoall,
    fake=_fake_alltoall,
    adjoint=lambda g, axis, counts, recv_counts, *rest: _alltoall(g, axis, recv_counts, counts, *rest),
)
