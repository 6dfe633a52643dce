"""Converts objects for msgpack: tags for types that it lacks, separate blocks for arrays.

Values that msgpack supports entirely are not touched, so an ordinary object costs one check of each
of its containers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import numpy as np

from pycollective.objects.object_codec import arrays, tags
from pycollective.objects.object_codec.arrays import Bytes
from pycollective.objects.object_codec.paddle_tensors import is_paddle, paddle_bytes, paddle_name
from pycollective.objects.object_codec.tags import MOST_NESTED, PLAIN, leaf_extension, tag

__all__ = ["ALIGNMENT", "Encoder", "NotSendable"]

ALIGNMENT = 16  # bytes; blocks with this alignment suit the elements of every dtype
LONGEST_STEP = 40
MOST_STEPS = 12


class NotSendable(Exception):
    """A part of the object cannot be sent. The text begins with its path: obj['model'][3]."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.steps: list[str] = []  # steps of the path, the innermost first

    def __str__(self) -> str:
        way = "".join(reversed(self.steps[-MOST_STEPS:])) + ("..." if len(self.steps) > MOST_STEPS else "")
        return f"obj{way} {self.reason}"


class Encoder:
    """Encodes one object. `blocks` are the bytes of its arrays, in the order of the skeleton."""

    def __init__(self, most_nbytes: int) -> None:
        self.blocks: list[Bytes] = []
        self._nbytes = 0
        self._most_nbytes = most_nbytes

    @staticmethod
    def aligned(offset: int) -> int:
        """Returns the next multiple of ALIGNMENT."""
        return -(-offset // ALIGNMENT) * ALIGNMENT

    def encode(self, value: Any, depth: int) -> object:  # noqa: ANN401
        """Returns the form of `value` that msgpack can write. Raises NotSendable.

        `value` is nested in `depth` containers.
        """
        kind = type(value)
        if kind in PLAIN:
            return value
        container = CONTAINERS.get(kind)
        if container is None:
            return self._leaf(value)
        if depth == MOST_NESTED:
            raise NotSendable(f"is nested more than {MOST_NESTED} deep, or holds itself")
        return container(self, value, depth + 1)

    def _list(self, value: list[Any], depth: int) -> object:
        return self._members(value, depth, "[{}]".format)

    def _tuple(self, value: tuple[Any, ...], depth: int) -> object:
        return [tag(tags.TUPLE), *self._members(value, depth, "[{}]".format)]

    def _set(self, value: set[Any] | frozenset[Any], depth: int) -> object:
        kind = tags.SET if type(value) is set else tags.FROZENSET
        return [tag(kind), *self._members(value, depth, lambda _: "{...}")]

    def _dict(self, value: dict[Any, Any], depth: int) -> object:
        names = list(value)
        # Keys are encoded before the members, because the errors of the members show the keys.
        keys = self._members(names, depth, ".keys()[{}]".format)
        members = self._members(value.values(), depth, lambda index: f"[{short(names[index])}]")
        if keys is names:
            return dict(zip(names, members, strict=True))
        flat = [each for pair in zip(keys, members, strict=True) for each in pair]
        return [tag(tags.DICT), *flat]

    def _members(self, values: Collection[Any], depth: int, step: Callable[[int], str]) -> Collection[object]:
        if PLAIN.issuperset(map(type, values)):
            return values
        encoded = []
        for index, each in enumerate(values):
            try:
                encoded.append(self.encode(each, depth))
            except NotSendable as refused:
                refused.steps.append(step(index))
                raise
        return encoded

    def _leaf(self, value: object) -> object:
        try:
            found = leaf_extension(value)
            if found is None:
                found = self._buffer(value)
        except ValueError as why:
            raise NotSendable(f"is {why}") from None
        if found is None:
            raise NotSendable(
                f"is a {type(value).__module__}.{type(value).__qualname__}, which cannot be sent "
                "(docs/objects.md): send what it holds, or pass allow_pickle=True on the sender and all receivers"
            )
        return found

    def _buffer(self, value: object) -> object | None:
        if isinstance(value, bytearray) and type(value) is bytearray:
            self._set_aside(len(value), lambda: np.frombuffer(value, np.uint8))
            return [tag(tags.BYTEARRAY), len(value)]
        if isinstance(value, np.ndarray) and type(value) is np.ndarray:
            name = sendable(value.dtype)
            self._set_aside(value.nbytes, lambda: arrays.array_bytes(value))
            return [tag(tags.ARRAY), name, *value.shape]
        if isinstance(value, np.generic):
            return scalar(value) if type(value) is value.dtype.type else None
        if arrays.is_tensor(value):
            return self._tensor(value)
        if is_paddle(value):
            return self._paddle(value)
        return None

    def _tensor(self, value: Any) -> object:  # noqa: ANN401  a torch.Tensor
        name = arrays.tensor_name(value)
        kind = tags.GPU_TENSOR if arrays.is_on_gpu(value) else tags.TENSOR
        self._set_aside(value.numel() * value.element_size(), lambda: arrays.tensor_bytes(value))
        return [tag(kind), name, *value.shape]

    def _paddle(self, value: Any) -> object:  # noqa: ANN401  a paddle.Tensor
        name = paddle_name(value)
        self._set_aside(value.size * value.element_size(), lambda: paddle_bytes(value))
        return [tag(tags.PADDLE), name, *value.shape]

    def _set_aside(self, nbytes: int, block: Callable[[], Bytes]) -> None:
        """Adds a block. Checks its size before copying it, because expanded arrays may be large."""
        self._nbytes += nbytes
        if self._nbytes > self._most_nbytes:
            raise NotSendable(f"and what stands before it take more than max_nbytes={self._most_nbytes}")
        self.blocks.append(block())


CONTAINERS: dict[type, Callable[[Encoder, Any, int], object]] = {
    list: Encoder._list,
    tuple: Encoder._tuple,
    set: Encoder._set,
    frozenset: Encoder._set,
    dict: Encoder._dict,
}


def short(key: object) -> str:
    text = repr(key)
    return text if len(text) <= LONGEST_STEP else text[: LONGEST_STEP - 3] + "..."


def sendable(dtype: np.dtype[Any]) -> str:
    name = arrays.dtype_name(dtype)
    if name is None:
        raise ValueError(f"an array of {dtype}: numbers, dates and text of a fixed size can be sent")
    return name


def scalar(value: np.generic) -> Iterable[object]:
    x = np.asarray(value)
    if isinstance(value, (str, bytes)) and len(x[()]) != len(value):
        raise ValueError("a NumPy text that ends in zeros, which NumPy cuts off: send it as str or bytes")
    return [tag(tags.SCALAR), sendable(x.dtype), x.tobytes()]
