"""allreduce, and the adjoint pair reduce and broadcast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pycollective.base.advice import advised
from pycollective.errors import Unsupported
from pycollective.torch.functional.live_groups import group_at, number_of, size_at
from pycollective.torch.functional.operation import Operation

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from pycollective._core import Group, OpName

__all__ = ["allreduce", "broadcast", "linear", "reduce"]

_ALIASES = {"add": "sum", "mean": "avg"}


def linear(call: str, x: Tensor, op: str) -> str:
    """Returns the canonical name of the op. Raises Unsupported if it lacks a needed gradient."""
    op = _ALIASES.get(op, op)
    if op not in ("sum", "avg") and x.requires_grad and torch.is_grad_enabled():
        raise Unsupported(
            f"{call}: x requires grad, and {op!r} has no gradient here: call with x.detach(), or with 'sum' or 'avg'"
        )
    return op


@advised
def allreduce(
    x: Tensor,
    op: OpName = "sum",
    *,
    group: Group | ProcessGroup | None = None,
    timeout: float | None = None,
) -> Tensor:
    """Combines the tensors of all ranks; every rank gets the result.

    Args:
        x: the same shape and dtype on every rank. It is only read.
        op: as for pycollective.allreduce(); "sum", "avg", "min" and "max" have a gradient.
        group: the ranks that take part; default the world. Ranks outside a subgroup hold None for
            it, and None means the world, so they must not call this.
        timeout: seconds, separately for the call and for its adjoint; default that of init().

    Returns:
        A new contiguous tensor of the shape and dtype of `x`. Its adjoint is the same allreduce.
        For "min" and "max" it gives the summed gradient to the rank that has the element, in equal
        shares if several ranks have it.

    Raises:
        Unsupported: `x` requires grad and `op` has no gradient.
        CollectiveError: as pycollective.allreduce().

    Example:
        >>> import torch, pycollective as pc
        >>> from pycollective.torch import functional as F
        >>> _ = pc.init()
        >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
        >>> F.allreduce(x).square().sum().backward()
        >>> x.grad
        tensor([2., 4.])
        >>> pc.shutdown()
    """
    if op in ("min", "max") and x.requires_grad and torch.is_grad_enabled():
        result: Tensor = _Extremum.apply(x, op, number_of(group), timeout)
        return result
    return _allreduce(x, linear("allreduce", x, op), number_of(group), timeout)


@advised
def reduce(
    x: Tensor,
    op: OpName = "sum",
    *,
    root: int = 0,
    group: Group | ProcessGroup | None = None,
    timeout: float | None = None,
) -> Tensor:
    """Combines the tensors of all ranks; the root gets the result.

    Args:
        x: the same shape and dtype on every rank. It is only read.
        op: as for pycollective.reduce(); "sum" and "avg" have a gradient.
        root: the rank that gets the result.
        group: the ranks that take part; default the world. Ranks outside a subgroup hold None for
            it, and None means the world, so they must not call this.
        timeout: seconds, separately for the call and for its adjoint; default that of init().

    Returns:
        A new contiguous tensor of the shape and dtype of `x`: the result on the root, zeros
        elsewhere. Its adjoint gives the root's gradient to every rank; gradients of the zeros are
        ignored.

    Raises:
        Unsupported: `x` requires grad and `op` has no gradient.
        CollectiveError: as pycollective.reduce().

    Example:
        >>> import torch, pycollective as pc
        >>> from pycollective.torch import functional as F
        >>> _ = pc.init()
        >>> F.reduce(torch.ones(2), root=0)
        tensor([1., 1.])
        >>> pc.shutdown()
    """
    return _reduce(x, linear("reduce", x, op), root, number_of(group), timeout)


@advised
def broadcast(
    x: Tensor,
    root: int = 0,
    *,
    group: Group | ProcessGroup | None = None,
    timeout: float | None = None,
) -> Tensor:
    """Gives every rank the root's tensor.

    Args:
        x: the same shape and dtype on every rank; its values are used only on the root. It is only
            read.
        root: the rank that provides the tensor.
        group: the ranks that take part; default the world. Ranks outside a subgroup hold None for
            it, and None means the world, so they must not call this.
        timeout: seconds, separately for the call and for its adjoint; default that of init().

    Returns:
        A new contiguous tensor. Its adjoint gives the root the sum of all gradients, and zeros to
        the other ranks. If `x` requires grad on the root, it must require grad on the other ranks,
        too.

    Raises:
        CollectiveError: as pycollective.broadcast().

    Example:
        >>> import torch, pycollective as pc
        >>> from pycollective.torch import functional as F
        >>> _ = pc.init()
        >>> x = torch.ones(2, requires_grad=True)
        >>> F.broadcast(x).sum().backward()
        >>> x.grad
        tensor([1., 1.])
        >>> pc.shutdown()
    """
    return _broadcast(x, root, number_of(group), timeout)


class _Extremum(torch.autograd.Function):
    """allreduce with min or max. Its gradient depends on the result, so it is no Operation."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, op: str, group: int, timeout: float | None) -> Tensor:  # noqa: ANN401
        result = _allreduce(x, op, group, timeout)
        ctx.save_for_backward((x == result) | (x.isnan() & result.isnan()))
        ctx.parameters = "sum", group, timeout
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        (is_mine,) = ctx.saved_tensors
        # int32, because a 16-bit type may round the counts
        owners = _allreduce(is_mine.to(torch.int32), *ctx.parameters)
        total = _allreduce(gradient, *ctx.parameters)
        share = total.to(torch.promote_types(total.dtype, torch.float32)) / owners.clamp(min=1)
        return torch.where(is_mine, share.to(total.dtype), 0), None, None, None


def _like(x: Tensor, *parameters: object) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _run_allreduce(x: Tensor, op: OpName, group: int, timeout: float | None) -> Tensor:
    return group_at(group).allreduce(x, op, out=_like(x), timeout=timeout)


def _run_reduce(x: Tensor, op: OpName, root: int, group: int, timeout: float | None) -> Tensor:
    ranks = group_at(group)
    result = x.clone(memory_format=torch.contiguous_format)
    ranks.reduce(result, op, root=root, timeout=timeout)
    return result if ranks.rank == root else result.zero_()


def _run_broadcast(x: Tensor, root: int, group: int, timeout: float | None) -> Tensor:
    result = x.clone(memory_format=torch.contiguous_format)
    return group_at(group).broadcast(result, root, timeout=timeout)


def _everywhere(g: Tensor, op: str, root: int, group: int, timeout: float | None) -> Tensor:
    gradient = _broadcast(g, root, group, timeout)
    return gradient / size_at(group) if op == "avg" else gradient


_allreduce: Operation = Operation(
    "allreduce(Tensor x, str op, int group, float? timeout) -> Tensor",
    run=_run_allreduce,
    fake=_like,
    adjoint=lambda g, *parameters: _allreduce(g, *parameters),
)
_reduce: Operation = Operation(
    "reduce(Tensor x, str op, int root, int group, float? timeout) -> Tensor",
    run=_run_reduce,
    fake=_like,
    adjoint=_everywhere,
)
_broadcast: Operation = Operation(
    "broadcast(Tensor x, int root, int group, float? timeout) -> Tensor",
    run=_run_broadcast,
    fake=_like,
    adjoint=lambda g, *parameters: _reduce(g, "sum", *parameters),
)
