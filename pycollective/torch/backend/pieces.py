"""Converts tensors to the form that the core takes: one block, or parts of one.

On a GPU, torch makes the copies, on the current stream. An output that cannot hold its results is
refused only after the call has completed: if a rank refused its output before the call, ranks
without an output would wait for that rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NoReturn

import torch

from pycollective.arrays.overlaps import Layout, overlap_in, overlaps_itself
from pycollective.errors import InvalidArgument
from pycollective.torch.backend.devices import check_one_device, why_not_one_device

__all__ = ["After", "check_apart", "flat_to_read", "flat_to_write", "read_apart", "to_read", "to_write"]

After = (
    Callable[[], None] | None
)  # what is left to do when the call has completed; it raises errors about outputs


def _is_block(tensor: torch.Tensor) -> bool:
    return tensor.is_contiguous() and not tensor.is_neg() and not tensor.is_conj()


def to_read(tensor: torch.Tensor) -> torch.Tensor:
    """Returns `tensor` itself if it is a block, else a copy that is one."""
    if _is_block(tensor):
        return tensor
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def to_write(tensor: torch.Tensor) -> tuple[torch.Tensor, After]:
    """Returns a block to write, and the function that copies it to `tensor` afterwards, or None.

    The block initially has the elements of `tensor`.
    """
    target = (
        tensor.detach()
        # Detached, so that a write is accepted although autograd may still need the old value, as
        # with torch's own backends.
    )
    if _is_block(tensor):
        return target, None
    block = to_read(tensor)
    if not tensor.is_contiguous() and (why := _why_not(tensor)):
        return block, partial(_refuse, why)
    return block, lambda: _copy(target, block)


def _refuse(why: str) -> NoReturn:
    raise InvalidArgument(why)


def _copy(target: torch.Tensor, source: torch.Tensor) -> None:
    target.copy_(source.view(target.shape))
    # The memory may belong to another stream. It must not be reused before this stream has finished
    # the copy.
    if target.is_cuda:
        for each in (target, source):
            each.record_stream(torch.cuda.current_stream(each.device))


def _as_one(tensors: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """Returns the block that these tensors form one after the other, or None if they form none."""
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
    """Returns a block with the elements of all tensors, one tensor after the other."""
    if len(tensors) == 1:
        return to_read(tensors[0])
    whole = _as_one(tensors)
    if whole is not None:
        return whole
    check_one_device("a list of tensors", tensors)
    return torch.cat([to_read(tensor).detach().view(-1) for tensor in tensors])


def read_apart(
    collective: str, x: torch.Tensor, out: torch.Tensor, rank: int, counts: Sequence[int] | None
) -> torch.Tensor:
    """Returns the block `x`, or a copy if it overlaps `out` elsewhere than at this rank's own part.

    The core would refuse such an overlap, and only on this rank if the other ranks have passed
    their own parts.
    """
    begin, other = x.data_ptr(), out.data_ptr()
    if begin + x.nbytes <= other or other + out.nbytes <= begin:
        return x
    part, whole = (x, out) if collective in ("allgather", "gather") else (out, x)
    before = part.numel() * rank if counts is None else sum(counts[:rank])
    is_own = part.data_ptr() == whole.data_ptr() + before * whole.element_size()
    return x if is_own and collective != "alltoall" else x.detach().clone()


def _layout(tensor: torch.Tensor) -> Layout:
    size = tensor.element_size()
    strides = tuple(step * size for step in tensor.stride())
    return Layout(tensor.data_ptr(), tuple(tensor.shape), strides, size)


def _why_not(tensor: torch.Tensor) -> str:
    """Returns why the tensor cannot hold a result, or an empty text."""
    if not overlaps_itself(_layout(tensor)):
        return ""
    return (
        f"an output of shape {tuple(tensor.shape)} is expanded: several of its elements share one place in memory. "
        "Pass a copy: x.contiguous()"
    )


def check_apart(call: str, outputs: Sequence[torch.Tensor]) -> None:
    """Raises InvalidArgument if several results would be written to the same memory."""
    if why := _why_not_all(call, outputs):
        raise InvalidArgument(why)


def _why_not_all(call: str, outputs: Sequence[torch.Tensor]) -> str:
    for each in outputs:
        if not each.is_contiguous() and (why := _why_not(each)):
            return why
    if (overlap := overlap_in([_layout(each) for each in outputs])) is None:
        return ""
    return (
        f"{call}: outputs {overlap.one} and {overlap.other} {overlap.words}: the result of one would be lost. Pass a "
        "tensor of its own for each, as [torch.empty_like(x) for _ in range(size)], not [buffer] * size"
    )


def flat_to_write(
    call: str, tensors: Sequence[torch.Tensor], *, are_apart: bool = False
) -> tuple[torch.Tensor, After]:
    """Returns a block for the elements of all tensors, and the function that copies it to them.

    The initial values of the block are arbitrary. `are_apart` means that check_apart() has already
    checked these tensors.
    """
    if len(tensors) == 1:
        return to_write(tensors[0])
    whole = _as_one(tensors)
    if whole is not None:
        return whole, None
    block = tensors[0].new_empty(sum(tensor.numel() for tensor in tensors))
    if why := why_not_one_device("a list of tensors", tensors):
        return block, partial(_refuse, why)
    if not are_apart and (why := _why_not_all(call, tensors)):
        return block, partial(_refuse, why)
    targets = [tensor.detach() for tensor in tensors]

    def spread() -> None:
        for target, part in zip(targets, block.split([each.numel() for each in targets]), strict=True):
            _copy(target, part)

    return block, spread
