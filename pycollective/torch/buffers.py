"""Copies rank 0's buffers to all ranks between forwards, hidden from autograd where that is safe.

The graph of an earlier forward may hold a buffer, and its backward may run later: the discriminator
of a GAN processes two batches before one backward. Autograd refuses that backward if the buffer was
written in between. Refusing is unnecessary after a write that changes nothing, and after a write to
the running statistics of a normalization in training mode, which the backward does not read. Both
kinds of writes are hidden from autograd; torch's DistributedDataParallel hides all writes. Autograd
sees every other write, because the gradients would otherwise be silently wrong.
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
    """The buffers of a module, looked up at each use, because the module may replace them."""

    def __init__(self, module: nn.Module, wanted: Collection[int]) -> None:
        """Records every buffer of the module that is None or has its id() in `wanted`."""
        self._places = [
            (each, name)
            for each in module.modules()
            for name, buffer in each._buffers.items()
            if buffer is None or id(buffer) in wanted
        ]

    def clear(self) -> None:
        """Forgets all buffers."""
        self._places.clear()

    def tensors(self) -> list[torch.Tensor]:
        """Returns each buffer once."""
        return list(self._found())

    def _found(self) -> dict[torch.Tensor, bool]:
        """Returns each buffer, and whether it is a running statistic of a training module."""
        found: dict[torch.Tensor, bool] = {}
        for module, name in self._places:
            if (buffer := module._buffers.get(name)) is not None:
                unread = isinstance(module, _NormBase) and module.training and name in STATISTICS
                found[buffer] = found.get(buffer, True) and unread
        return found

    def replace(self, broadcast: Callable[[list[torch.Tensor]], object], *, graphs_wait: bool) -> None:
        """Calls `broadcast` to overwrite the buffers.

        `graphs_wait` is true if a backward may still run for an earlier forward.
        """
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
