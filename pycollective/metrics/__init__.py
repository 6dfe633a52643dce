"""Metrics over all ranks, correct for uneven shards: one call adds up sums and weights.

    loss = pc.metrics.Meter()
    for x, y in batches:
        loss.update(criterion(model(x), y), len(x))   # on this rank alone
    print(loss.compute())                             # over all ranks

Values may be numbers, or arrays and tensors of one element of any library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pycollective.base.foreign_words import missing
from pycollective.metrics.joined import cat
from pycollective.metrics.meter import Meter, compute, mean
from pycollective.metrics.sums import sum
from pycollective.metrics.top_k import accuracy

__all__ = ["Meter", "accuracy", "cat", "compute", "mean", "sum"]

if not TYPE_CHECKING:  # with a __getattr__, type checkers would accept every name

    def __getattr__(name: str) -> object:
        raise missing(__name__, name, __all__)
