"""Tensors as the core takes them: in one block, or as parts of one.

On a GPU what is copied is copied there, by torch, on the stream that is the current one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import torch

from pycollective.arrays.library import itself_overlaps, span_of
from pycollective.errors import InvalidArgument
from pycollective.torch.devices import check_one_device

__all__ = ["After", "check_apart", "flat_to_read", "flat_to_write", "to_read", "to_write"]

After = Callable[[], None] | None  # what is left to do when the call has ended


def _is_block(tensor: torch.Tensor) -> bool:
    return tensor.is_contiguous() and not tensor.is_neg() and not tensor.is_conj()


def to_read(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor` itself where it lies in one block, else a copy."""
    if _is_block(tensor):
        return tensor
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def to_write(tensor: torch.Tensor) -> tuple[torch.Tensor, After]:
    """A block to write, and what brings it to `tensor` afterwards. It begins with the elements of `tensor`."""
    if not tensor.is_contiguous():
        _span(tensor)
    target = (
        tensor.detach()
    )  # what others made of it is theirs: as with torch's own backends, a write is not refused
    if _is_block(tensor):
        return target, None
    block = to_read(tensor)
    return block, lambda: _copy(target, block)


def _copy(target: torch.Tensor, source: torch.Tensor) -> None:
    target.copy_(source.view(target.shape))
    if target.is_cuda:  # maybe of another stream, which is not to use their memory again before this is done
        for each in (target, source):
            each.record_stream(torch.cuda.current_stream(each.device))


def _as_one(tensors: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """The block that these tensors are, one after the other, if they are."""
    first = tensors[0]
    storage = first.untyped_storage().data_ptr()
    place = begin = first.data_ptr()
    for tensor in tensors:
        if (
            not _is_block(tensor)
            or tensor.data_ptr() != place
            or tensor.dtype != first.dtype
            or tensor.untyped_storage().data_ptr() != storage
        ):
            return None
        place += tensor.nbytes
    count = (place - begin) // first.element_size()
    return first.detach().as_strided((count,), (1,))


def flat_to_read(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """The elements of all, one tensor after the other."""
    whole = _as_one(tensors)
    if whole is not None:
        return whole
    check_one_device("a list of tensors", tensors)
    return torch.cat([to_read(tensor).detach().view(-1) for tensor in tensors])


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """First address of its elements, and the one after the last. InvalidArgument: several are in one place."""
    size = tensor.element_size()
    strides = tuple(step * size for step in tensor.stride())
    if itself_overlaps(tuple(tensor.shape), strides, size):
        raise InvalidArgument(
            f"an output of shape {tuple(tensor.shape)} is expanded: several of its elements share one place in memory. "
            "Pass a copy: x.contiguous()"
        )
    return span_of(tensor.data_ptr(), tuple(tensor.shape), strides, size)


def check_apart(call: str, outputs: Sequence[torch.Tensor]) -> None:
    """Refuses outputs that are to hold several results in one place."""
    ranges = sorted((*_span(each), place) for place, each in enumerate(outputs) if each.numel())
    together = [
        (one, other) for (_, end, one), (begin, _, other) in itertools.pairwise(ranges) if begin < end
    ]
    if together and not _interleave([outputs[place] for _, _, place in ranges]):
        one, other = sorted(together[0])
        raise InvalidArgument(
            f"{call}: outputs {one} and {other} share memory: the result of one would be lost. Pass a tensor of "
            "its own for each, as [torch.empty_like(x) for _ in range(size)], not [buffer] * size"
        )


def _interleave(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether these, in the order of their addresses, are disjoint though their ranges are not: columns of a matrix."""
    first, size = tensors[0], tensors[0].element_size()
    steps = {after.data_ptr() - before.data_ptr() for before, after in itertools.pairwise(tensors)}
    if len(steps) == 1 and len({(each.shape, each.stride(), each.dtype) for each in tensors}) == 1:
        strides = (steps.pop(), *(step * size for step in first.stride()))
        if not itself_overlaps((len(tensors), *first.shape), strides, size):
            return True
    places = torch.cat([_places(each, first.data_ptr()) for each in tensors])
    return len(places.unique()) == len(places)


def _places(tensor: torch.Tensor, begin: int) -> torch.Tensor:
    """Where each of its bytes lies."""
    size = tensor.element_size()
    places = torch.tensor(tensor.data_ptr() - begin)
    for length, step in zip(tensor.shape, tensor.stride(), strict=True):
        places = places[..., None] + torch.arange(length) * (step * size)
    return (places[..., None] + torch.arange(size)).reshape(-1)


def flat_to_write(call: str, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, After]:
    """A block for the elements of all, and what brings them there afterwards. It begins with anything."""
    whole = _as_one(tensors)
    if whole is not None:
        return whole, None
    check_apart(call, tensors)
    check_one_device("a list of tensors", tensors)
    block = tensors[0].new_empty(sum(tensor.numel() for tensor in tensors))
    targets = [tensor.detach() for tensor in tensors]

    def spread() -> None:
        for target, part in zip(targets, block.split([each.numel() for each in targets]), strict=True):
            _copy(target, part)

    return block, spread
