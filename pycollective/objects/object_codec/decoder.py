"""Decodes msgpack's output to objects.

The input comes from a peer, so every step is checked. TypeError or ValueError reports a defect.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from pycollective.objects.object_codec import arrays, tags
from pycollective.objects.object_codec.arrays import Bytes
from pycollective.objects.object_codec.encoder import ALIGNMENT
from pycollective.objects.object_codec.paddle_tensors import read_paddle
from pycollective.objects.object_codec.tags import LEAVES, MOST_NESTED, Tag

if TYPE_CHECKING:
    import torch

__all__ = ["Decoder"]


class Decoder:
    """Decodes one object. Its blocks are in `data` from `end` on, in the order of their use."""

    def __init__(self, data: Bytes, end: int) -> None:
        self._data = data
        self._end = end

    def decode(self, value: Any, depth: int) -> object:  # noqa: ANN401
        """Returns the object for `value`, which is nested in `depth` containers."""
        kind = type(value)
        if kind in LEAVES:
            return value
        is_tagged = kind is list and value and type(value[0]) is Tag
        if is_tagged and value[0] in BLOCKS:
            return BLOCKS[value[0]](self, *value[1:])
        if depth == MOST_NESTED:
            raise ValueError(f"nested more than {MOST_NESTED} deep")
        if is_tagged:
            return CONTAINERS[value[0]](self._members(value[1:], depth + 1))
        if kind is list:
            return self._members(value, depth + 1)
        if kind is dict and LEAVES.issuperset(map(type, value)):
            return dict(zip(value, self._members(list(value.values()), depth + 1), strict=True))
        raise ValueError("a tag where none belongs")

    def _members(self, values: list[Any], depth: int) -> list[Any]:
        if LEAVES.issuperset(map(type, values)):
            return values
        return [self.decode(each, depth) for each in values]

    def check_end(self) -> None:
        """Raises ValueError if bytes are left over."""
        if self._end != len(self._data):
            raise ValueError(f"{len(self._data) - self._end} bytes behind its end")

    def _rest(self) -> Bytes:
        self._end = -(-self._end // ALIGNMENT) * ALIGNMENT
        return self._data[self._end :]

    def _bytearray(self, nbytes: object) -> bytearray:
        x = self._array("|u1", nbytes)
        return bytearray(x.data)

    def _array(self, name: object, *shape: Any) -> np.ndarray[Any, Any]:  # noqa: ANN401
        x = arrays.read_array(text(name), shape, self._rest())
        self._end += x.nbytes
        return x

    def _tensor(self, name: object, *shape: Any) -> torch.Tensor:  # noqa: ANN401
        x = arrays.read_tensor(text(name), shape, self._rest())
        self._end += x.numel() * x.element_size()
        return x

    def _gpu_tensor(self, name: object, *shape: Any) -> object:  # noqa: ANN401
        return arrays.on_gpu_if_any(self._tensor(name, *shape))

    def _paddle(self, name: object, *shape: Any) -> object:  # noqa: ANN401
        x = read_paddle(text(name), shape, self._rest())
        self._end += x.size * x.element_size()
        return x

    def _scalar(self, name: object, data: bytes) -> object:
        x = arrays.read_array(text(name), (), np.frombuffer(data, np.uint8))
        if x.nbytes != len(data):
            raise ValueError(f"a number of {len(data)} bytes")
        return x[()]


def text(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError("a dtype that is no text")
    return name


def pairs(flat: list[Any]) -> dict[Any, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


CONTAINERS: dict[Tag, Callable[[list[Any]], object]] = {
    tags.TUPLE: tuple,
    tags.SET: set,
    tags.FROZENSET: frozenset,
    tags.DICT: pairs,
}
BLOCKS: dict[Tag, Callable[..., object]] = {
    tags.BYTEARRAY: Decoder._bytearray,
    tags.ARRAY: Decoder._array,
    tags.SCALAR: Decoder._scalar,
    tags.TENSOR: Decoder._tensor,
    tags.GPU_TENSOR: Decoder._gpu_tensor,
    tags.PADDLE: Decoder._paddle,
}
