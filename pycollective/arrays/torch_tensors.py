"""torch tensors that are not contiguous."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pycollective.arrays.library import Memory, Shape
from pycollective.arrays.overlaps import Layout, overlaps_itself
from pycollective.errors import Unsupported

__all__ = ["TorchTensors"]


class TorchTensors:
    """torch.Tensor and its subclasses."""

    name = "torch"
    mutable = True

    def __init__(self) -> None:
        import torch

        self._torch = torch

    def owns(self, x: Any) -> bool:
        return isinstance(x, self._torch.Tensor)

    def shape(self, x: Any) -> Shape:
        self._check(x)
        return tuple(x.shape)

    def _check(self, x: Any) -> None:
        if x.is_nested:
            raise Unsupported("a nested tensor has no shape of its own: pass its parts, x.unbind()")

    def dtype(self, x: Any) -> str:
        return str(x.dtype).removeprefix("torch.")

    def nbytes(self, x: Any) -> int:
        self._check(x)
        return int(x.numel() * x.element_size())

    def is_block(self, x: Any) -> bool:
        # The core refuses tensors without strides or on an unsupported device, so they need no
        # packing.
        if x.layout != self._torch.strided or x.device.type not in ("cpu", "cuda"):
            return True
        return bool(x.is_contiguous()) and not x.is_conj() and not x.is_neg()

    def order(self, x: Any) -> Shape:
        strides = x.stride()
        # sorted() is stable, so axes of equal stride stay in index order
        axes = tuple(sorted(range(x.dim()), key=lambda axis: -strides[axis]))
        # a tensor that is not contiguous in this order either has gaps, and gets index order
        return axes if x.permute(axes).is_contiguous() else tuple(range(x.dim()))

    def layout(self, x: Any) -> Layout:
        size = x.element_size()
        return Layout(x.data_ptr(), tuple(x.shape), tuple(s * size for s in x.stride()), size)

    def on(self, memory: Memory, like: Any, shape: Shape) -> Any:
        if not memory.size or like.device.type != "cpu":
            return self.empty(like, shape)
        return self._torch.from_numpy(memory).view(like.dtype).view(shape)

    def empty(self, like: Any, shape: Shape) -> Any:
        return self._torch.empty(shape, dtype=like.dtype, device=like.device)

    def assign(self, target: Any, source: Any) -> None:
        target.detach().copy_(source.detach())  # autograd counts it as an in-place modification of target

    def assign_many(self, targets: Sequence[Any], sources: Sequence[Any]) -> None:
        if not targets:
            return
        if self._torch.is_grad_enabled():
            with self._torch.no_grad():  # one no_grad() for all tensors is cheaper than detaching each
                self._torch._foreach_copy_(list(targets), list(sources))
        else:  # in a backward pass
            self._torch._foreach_copy_(list(targets), list(sources))

    def finished(self, block: Any, like: Any) -> Any:
        return block

    def moved(self, x: Any, source: int, target: int) -> Any:
        return x.detach().movedim(source, target)

    def why_not_written(self, x: Any) -> str:
        if x.requires_grad and not x.is_leaf:
            return (
                "requires grad and is the result of another operation, which autograd may still need: pass "
                "x.detach().clone()"
            )
        if x.layout is not self._torch.strided:
            return f"has layout {x.layout}, which has no strided memory: pass x.to_dense()"
        if not x.is_contiguous() and overlaps_itself(self.layout(x)):
            return (
                f"of shape {tuple(x.shape)} is expanded: several of its elements share one place in memory. Pass a "
                "copy: x.contiguous()"
            )
        return ""
