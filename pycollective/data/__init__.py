"""Divides samples over the ranks and loads them, with any framework or none. See docs/data.md.

    sampler = pc.data.BatchSampler(len(dataset), global_batch_size=256, shuffle=True)
    for batch in sampler:       # a list of indices: this rank's slice of each global batch
        ...

A sampler is pure arithmetic on (seed, epoch, position, rank, size): `order` maps positions of an
epoch to samples, `cut` maps positions to ranks, and `epochs` tracks the program's position. If one
rank raises an exception before a collective call, all ranks raise it (`agreement`), so that no rank
waits for that rank.
"""

from typing import TYPE_CHECKING

from pycollective.base.foreign_words import missing
from pycollective.data.collected import gather
from pycollective.data.from_root import scatter
from pycollective.data.loader import DataLoader
from pycollective.data.samplers import BatchSampler, Sampler
from pycollective.data.shared_data import shared
from pycollective.data.stream import shard

__all__ = ["BatchSampler", "DataLoader", "Sampler", "gather", "scatter", "shard", "shared"]

if not TYPE_CHECKING:  # with a __getattr__, type checkers would accept every name

    def __getattr__(name: str) -> object:
        raise missing(__name__, name, __all__)
