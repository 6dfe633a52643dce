"""What backward begins with: losses, their weight, and whether they are sums over a batch."""

from __future__ import annotations

from typing import Any

import torch

from pycollective.errors import InvalidArgument
from pycollective.torch.auto.batches import WHO

__all__ = ["is_own_scalar", "refuse_sums", "weighted"]

MOST_NODES = 1000
SUM = 2  # torch's number for reduction="sum"


def weighted(roots: tuple[Any, ...], gradients: Any, weight: float) -> Any:  # noqa: ANN401  as of backward()
    """The gradients to begin with."""
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
    return None  # backward() says what is wrong


def is_own_scalar(root: Any) -> bool:  # noqa: ANN401
    """Whether it is a loss whose value may be replaced: nobody else's memory."""
    return (
        isinstance(root, torch.Tensor)
        and root.numel() == 1
        and root.is_floating_point()
        and not root.is_leaf
        and not root._is_view()
    )


def refuse_sums(roots: tuple[Any, ...]) -> None:
    """Raises for a loss that is a sum over the batch, as far as that shows: no mean and no division is in it."""
    for root in roots:
        if isinstance(root, torch.Tensor) and root.grad_fn is not None and root.numel() == 1:
            reduced = _reductions(root.grad_fn)
            if reduced and ("asked" in reduced or reduced == {"sum"}):
                raise InvalidArgument(
                    f"{WHO}: this loss is a sum over the samples of a batch, and here they are taken for means: divide "
                    "by their number, or say --reduction sum, if all losses of the script are sums"
                )


def _reductions(node: Any) -> set[str]:  # noqa: ANN401
    """How the numbers came to be of which a loss is made by arithmetic."""
    found: set[str] = set()
    nodes, seen = [node], {node}
    while nodes and len(seen) < MOST_NODES:
        each = nodes.pop()
        name, reduction = each.name(), getattr(each, "_saved_reduction", None)
        if reduction is not None:
            found.add("asked" if reduction == SUM else "mean")
        elif name.startswith("SumBackward"):
            found.add("sum")
        elif name.startswith(("Add", "Sub", "Mul", "Neg", "ToCopy", "Clone", "Squeeze", "View")):
            new = [behind for behind, _ in each.next_functions if behind is not None and behind not in seen]
            nodes.extend(behind for behind in new if _is_scalar(behind))
            seen.update(new)
        else:
            found.add("mean")  # or what we know nothing of
    return found


def _is_scalar(node: Any) -> bool:  # noqa: ANN401
    metadata = getattr(node, "_input_metadata", ())
    return not metadata or all(not [length for length in each.shape if length != 1] for each in metadata)
