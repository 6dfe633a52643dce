"""Rank 0's buffers for all ranks, between a forward and the next, as far as autograd need not see it.

A graph of an earlier forward may have kept a buffer, and its backward may still come: a GAN's discriminator sees two
batches before one backward. Autograd refuses that backward where the buffer was written since. A write that changes
nothing is no reason for that, nor is one of the running statistics of a normalization that trains, which its backward
does not read: both are hidden from autograd, as torch's DistributedDataParallel hides all of them. What has changed is
left for autograd to see: gradients would be wrong without a word.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import ExitStack

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

__all__ = ["Buffers"]

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


class Buffers:
    """Those of a module, wherever they stand now: modules may put another tensor there."""

    def __init__(self, module: nn.Module, wanted: Collection[int]) -> None:
        """The places where a buffer whose id() is in `wanted` stands now, or none does."""
        self._places = [
            (each, name)
            for each in module.modules()
            for name, buffer in each._buffers.items()
            if buffer is None or id(buffer) in wanted
        ]

    def clear(self) -> None:
        """There are none."""
        self._places.clear()

    def tensors(self) -> list[torch.Tensor]:
        """Each once."""
        return list(self._found())

    def _found(self) -> dict[torch.Tensor, bool]:
        """Whether each is among the statistics of a module that trains."""
        found: dict[torch.Tensor, bool] = {}
        for module, name in self._places:
            if (buffer := module._buffers.get(name)) is not None:
                unread = isinstance(module, _NormBase) and module.training and name in STATISTICS
                found[buffer] = found.get(buffer, True) and unread
        return found

    def replace(self, broadcast: Callable[[list[torch.Tensor]], object], *, graphs_wait: bool) -> None:
        """Has `broadcast` write them. `graphs_wait`: whether a backward may come whose forward has been."""
        found = self._found()
        if not found:
            return
        # Tensors made under inference_mode are in no graph.
        tracked = {each: unread for each, unread in found.items() if not each.is_inference()}
        copies = {
            each: each.detach().clone() for each, unread in tracked.items() if graphs_wait and not unread
        }
        with ExitStack() as hidden:
            for each in tracked:
                if each not in copies:
                    hidden.enter_context(torch.autograd._unsafe_preserve_version_counter(each))
            broadcast([copies.get(each, each) for each in found])
        for each, came in copies.items():
            if not torch.equal(_bytes(each), _bytes(came)):
                each.detach().copy_(came)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().resolve_conj().resolve_neg().reshape(-1).view(torch.uint8)
