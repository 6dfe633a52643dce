"""Paddle tensors that are not contiguous."""

from __future__ import annotations

import math
from typing import Any

from pycollective.arrays.library import Memory, OneByOne, Shape
from pycollective.arrays.overlaps import Layout, overlaps_itself
from pycollective.errors import Unsupported

__all__ = ["PaddleTensors"]


class PaddleTensors(OneByOne):
    """paddle.Tensor and its subclasses.

    Tensor.contiguous() must not be used, because it changes the memory of the tensor itself.
    """

    name = "paddle"
    mutable = True

    def __init__(self) -> None:
        import paddle
        from paddle.utils.dlpack import from_dlpack

        self._paddle, self._from_dlpack = paddle, from_dlpack
        self._flags = paddle.base.core.globals()
        # Paddle has no kernels for these types, copies their tensors instead of making views, and
        # reports uint16 as bfloat16. Tensors of these types are refused.
        known: Any = paddle.base.core.DataType
        self._hardly_known = {known.UINT16: "uint16", known.UINT32: "uint32", known.UINT64: "uint64"}

    def owns(self, x: Any) -> bool:
        return isinstance(x, self._paddle.Tensor)

    def shape(self, x: Any) -> Shape:
        self._check(x)
        return tuple(x.shape)

    def _check(self, x: Any) -> None:
        if not x.is_dense():
            raise Unsupported("the tensor has no plain memory: pass the tensor inside, such as x.values()")
        if not _is_on_cpu(x):
            raise Unsupported(
                f"the tensor lies on {x.place}, and of Paddle pycollective takes tensors on the CPU alone: pass x.cpu()"
            )
        if x.dtype in self._hardly_known:
            dtype = self._hardly_known[x.dtype]
            raise Unsupported(
                f"Paddle makes no tensors of {dtype} and no views of them, which this call needs: pass a NumPy array"
            )
        if not self._flags["FLAGS_use_stride_kernel"]:
            raise Unsupported(
                "Paddle makes copies instead of views, and this call needs views: "
                'paddle.set_flags({"FLAGS_use_stride_kernel": True})'
            )

    def dtype(self, x: Any) -> str:
        return str(x.dtype).removeprefix("paddle.")

    def nbytes(self, x: Any) -> int:
        return math.prod(self.shape(x)) * _itemsize(x)

    def is_block(self, x: Any) -> bool:
        # The core refuses tensors without strides or on an unsupported device, so they need no
        # packing.
        return not x.is_dense() or not _is_on_cpu(x) or bool(x.is_contiguous())

    def order(self, x: Any) -> Shape:
        return tuple(range(len(self.shape(x))))

    def layout(self, x: Any) -> Layout:
        return Layout(x.data_ptr(), tuple(x.shape), _strides(x), _itemsize(x))

    def on(self, memory: Memory, like: Any, shape: Shape) -> Any:
        if not memory.size:
            return self.empty(like, shape)
        return self._from_dlpack(memory).view(like.dtype).reshape(shape)

    def empty(self, like: Any, shape: Shape) -> Any:
        return like.new_empty(shape)

    def assign(self, target: Any, source: Any) -> None:
        if 0 in target.shape:
            return
        target.detach().copy_(source.detach(), True)
        target._bump_inplace_version()  # copy_() omits this, so autograd would not notice the write

    def finished(self, block: Any, like: Any) -> Any:
        return block

    def moved(self, x: Any, source: int, target: int) -> Any:
        return self._paddle.moveaxis(x.detach(), source, target)

    def why_not_written(self, x: Any) -> str:
        if not x.stop_gradient and not x.is_leaf:
            return (
                "requires grad (stop_gradient is False) and is the result of another operation, which autograd may "
                "still need: pass x.detach().clone()"
            )
        if overlaps_itself(self.layout(x)):
            return (
                f"of shape {tuple(x.shape)} is expanded: several of its elements share one place in memory. Pass a "
                "copy: x.clone()"
            )
        return ""


def _strides(x: Any) -> Shape:
    return tuple(stride * _itemsize(x) for stride in x.strides)


def _itemsize(x: Any) -> int:
    size: int = x.element_size()
    return size


def _is_on_cpu(x: Any) -> bool:
    return bool(x.place.is_cpu_place() or x.place.is_cuda_pinned_place())
