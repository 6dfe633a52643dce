"""DataLoader draws the same batches on all ranks, and loads only this rank's part in training.

If the dataset is iterable, every rank reads all samples and keeps its part. If worker processes
read an iterable dataset, batches stay whole, because the workers do not know whether the script
trains.
"""

from __future__ import annotations

import contextlib
import zlib
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, dataloader

from pycollective._core import Group
from pycollective.errors import Unsupported
from pycollective.torch.auto import randomness
from pycollective.torch.auto.batches import NAME, Batches, Pass
from pycollective.torch.auto.replaced import replace

__all__ = ["install"]

Iterator, Kind = dataloader._BaseDataLoaderIter, dataloader._DatasetKind


def install(undone: contextlib.ExitStack, batches: Batches, group: Group) -> None:
    """Replaces methods of all DataLoaders. `undone` restores them."""
    make, reset, next_index, take = (
        Iterator.__init__,
        Iterator._reset,
        Iterator._next_index,
        Iterator.__next__,
    )
    train = nn.Module.train

    def begin(iterator: Any, loader: DataLoader[Any]) -> Pass:  # noqa: ANN401
        if loader.num_workers and not getattr(loader, "in_order", True):
            raise Unsupported(f"{NAME}: DataLoader(in_order=False) hands out other batches on every rank")
        enabled = torch.is_grad_enabled()
        if enabled:  # not for evaluation, which needs no common order and may run on one rank only
            randomness.synchronize(group, loader)
        return batches.begin(loader, iterator, enabled)

    def __init__(self: Any, loader: DataLoader[Any]) -> None:  # noqa: ANN401
        self._pass = running = begin(self, loader)
        make(self, loader)
        if self._auto_collation and self._dataset_kind == Kind.Iterable and not loader.num_workers:
            collate = self._collate_fn
            self._collate_fn = lambda samples: collate(batches.draw(running, samples, len))

    def _reset(self: Any, loader: DataLoader[Any], first_iter: bool = False) -> None:  # noqa: ANN401
        if not first_iter:  # a later pass reuses the workers of the previous pass
            self._pass.exhausted = True
            self._pass = begin(self, loader)
        reset(self, loader, first_iter)

    def _next_index(self: Any) -> Any:  # noqa: ANN401
        indices = next_index(self)
        if self._auto_collation and self._dataset_kind == Kind.Map:
            return batches.draw(self._pass, indices, _digest)
        return indices

    def __next__(self: Any) -> Any:  # noqa: ANN401
        try:
            data = take(self)
        except StopIteration:
            batches.end(self._pass)
            raise
        except Exception:
            batches.leave_out(self._pass)
            raise
        batches.hand(self._pass)
        return data

    def mode(self: nn.Module, mode: bool = True) -> nn.Module:
        batches.eval_mode = not mode
        return train(self, mode)

    for ours in (__init__, _reset, _next_index, __next__):
        replace(undone, Iterator, ours.__name__, ours)
    replace(undone, nn.Module, "train", mode)


def _digest(indices: Any) -> int:  # noqa: ANN401  whatever a batch sampler yields
    try:
        return zlib.crc32(np.asarray(indices, np.int64).tobytes())
    except (TypeError, ValueError, OverflowError):  # indices may have any type
        return len(indices)
