"""Which samples a rank takes, and how they come to it; any framework, no framework. docs/data.md says how to use it.

    sampler = pc.data.BatchSampler(len(dataset), global_batch_size=256, shuffle=True)
    for batch in sampler:       # this rank's slice of each global batch, as a list of indices
        ...

A sampler is pure arithmetic on (seed, epoch, position, rank, size): `order` says where a sample comes in an epoch,
`cut` which rank gets it, `epochs` where the program is. What one rank raises before a call on all of them is raised on
all (`agreement`), so nobody waits for it.
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

if not TYPE_CHECKING:  # to which every name would seem to be there

    def __getattr__(name: str) -> object:
        raise missing(__name__, name, __all__)
