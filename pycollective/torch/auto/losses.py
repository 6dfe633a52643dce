"""The start of backward: the losses, their weights, and whether they are sums over a batch."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor

from pycollective.errors import InvalidArgument
from pycollective.torch.auto.batches import NAME

__all__ = ["is_own_scalar", "refuse_sums", "weighted"]

MOST_NODES = 1000
SUM = 2  # the number by which torch saves reduction="sum" in the graph


def weighted(roots: tuple[Any, ...], gradients: Any, weight: float) -> Any:  # noqa: ANN401  as of backward()
    """Returns the gradients with which backward begins, multiplied by `weight`."""
    if weight == 1:
        return gradients
    if gradients is None:
        gradients = [None] * len(roots)
    elif isinstance(gradients, torch.Tensor):
        gradients = [gradients]
    return [_times(root, each, weight) for root, each in zip(roots, gradients, strict=True)]


def _times(root: Any, gradient: torch.Tensor | None, weight: float) -> torch.Tensor | None:  # noqa: ANN401
    if gradient is not None:
        return gradient * weight
    if isinstance(root, torch.Tensor) and root.numel() == 1:
        return torch.full_like(root, weight)
    return None  # backward() reports the error


def is_own_scalar(root: Any) -> bool:  # noqa: ANN401
    """Returns whether `root` is a loss with its own memory, so that its value may be replaced."""
    return (
        isinstance(root, torch.Tensor)
        and root.numel() == 1
        and root.is_floating_point()
        and not root.is_leaf
        and not root._is_view()
    )


def refuse_sums(roots: tuple[Any, ...], gradients: Any, parts: Collection[int]) -> None:  # noqa: ANN401
    """Raises InvalidArgument for a loss that is recognizable as a sum over the batch.

    `parts` are the sizes of this rank's parts of batches. A loss is a sum in three cases: it is
    summed without a mean or a division; a term of it sums as many rows as there are samples; or
    backward(torch.ones(...)) starts from one loss per sample.
    """
    if not parts:
        return
    given = gradients if isinstance(gradients, (tuple, list)) else [gradients] * len(roots)
    for root, gradient in zip(roots, given, strict=True):
        if isinstance(root, Tensor) and root.grad_fn is not None and _is_sum(root, gradient, parts):
            raise InvalidArgument(
                f"{NAME}: this loss is a sum over the samples of a batch, or a term of it is, and here they are taken "
                "for means: divide by their number, or say --reduction sum, if all losses of the script are sums"
            )


def _is_sum(root: Tensor, gradient: Tensor | None, parts: Collection[int]) -> bool:
    if root.numel() == 1:
        reduced = _reductions(root.grad_fn, parts)
        return bool(reduced & {"asked", "of samples"}) or reduced == {"sum"}
    return gradient is not None and root.shape[0] in parts and bool((gradient == 1).all())


def _reductions(node: Any, parts: Collection[int]) -> set[str]:  # noqa: ANN401
    """Returns the kinds of the reductions with results that the loss combines by arithmetic."""
    found: set[str] = set()
    nodes, seen = [node], {node}
    while nodes and len(seen) < MOST_NODES:
        each = nodes.pop()
        name, reduction = each.name(), getattr(each, "_saved_reduction", None)
        if reduction is not None:
            found.add("asked" if reduction == SUM else "mean")
        elif name.startswith("SumBackward"):
            found.add("of samples" if _of_samples(each, parts) else "sum")
        elif name.startswith(("Add", "Sub", "Mul", "Neg", "ToCopy", "Clone", "Squeeze", "View")):
            new = _behind(each, seen)
            nodes.extend(behind for behind in new if _is_scalar(behind))
        else:
            found.add("mean")  # an unknown operation counts as a mean
    return found


def _of_samples(node: Any, parts: Collection[int]) -> bool:  # noqa: ANN401
    """Returns whether `node` sums as many rows as there are samples.

    Rows of parameters do not count, because they are summed for a penalty.
    """
    shape = getattr(node, "_saved_self_sym_sizes", ())
    if not shape or shape[0] not in parts:
        return False
    nodes, seen = [node], {node}
    while nodes and len(seen) < MOST_NODES:
        each = nodes.pop()
        leaf = getattr(each, "variable", None)
        if leaf is not None and tuple(leaf.shape[:1]) != (shape[0],):
            return True
        nodes.extend(_behind(each, seen))
    return False


def _behind(node: Any, seen: set[Any]) -> list[Any]:  # noqa: ANN401
    """Returns the nodes after `node` that are not in `seen`, and adds them to `seen`."""
    new = [each for each, _ in node.next_functions if each is not None and each not in seen]
    seen.update(new)
    return new


def _is_scalar(node: Any) -> bool:  # noqa: ANN401
    metadata = getattr(node, "_input_metadata", ())
    return not metadata or all(not [length for length in each.shape if length != 1] for each in metadata)
